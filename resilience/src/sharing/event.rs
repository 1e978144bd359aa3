use std::{pin::Pin, time::Duration};

use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};

use super::Core;
use crate::{
    breaker::{BreakerEvent, Cause, CircuitBreaker, State},
    store::board::Hold,
};

/// What happens to a shared breaker, as this instance sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedEvent {
    /// It has opened, here or for all.
    Opened {
        /// Why.
        cause: Cause,
        /// How long it stays open before the first probe; `None` while an operator holds it.
        open_for: Option<Duration>,
    },
    /// A probe was let in, here. Probes of other instances are not told: [`Status::state`](super::Status::state) shows them.
    HalfOpened,
    /// It has closed, here or for all.
    Closed {
        /// Why.
        cause: Cause,
    },
    /// An operator holds it, or holds it otherwise than before.
    Overridden(Hold),
    /// The operator has let go, or the order has ended.
    Released,
    /// The store does not answer, or refuses the credentials: each instance goes by itself, and the last that is known.
    Degraded,
    /// The store answers again.
    Restored,
}

/// The events of one breaker, from now on: a stream that never ends while the breaker or its runtime is there.
///
/// A reader that falls 64 behind misses the oldest, and never holds anything up.
/// What operators and the store do is told beside what the circuit does: whoever reads late may read the one before the other.
#[must_use = "a stream does nothing until it is polled"]
pub struct Events(Pin<Box<dyn Stream<Item = SharedEvent> + Send>>);

impl Events {
    pub(super) fn of(breaker: &CircuitBreaker, core: Option<&Core>) -> Self {
        let name = breaker.name().to_owned();
        let own = received(breaker.events()).filter_map(move |event| {
            let event = (*event.breaker == *name).then(|| SharedEvent::from(event));
            std::future::ready(event)
        });
        let Some(core) = core else { return Self(own.boxed()) };
        let name = breaker.name().to_owned();
        let told = received(core.events()).filter_map(move |(breaker, event)| {
            let is_ours = breaker.is_none_or(|breaker| *breaker == *name);
            std::future::ready(is_ours.then_some(event))
        });
        Self(stream::select(own, told).boxed())
    }
}

impl Stream for Events {
    type Item = SharedEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<SharedEvent>> {
        self.0.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl From<BreakerEvent> for SharedEvent {
    fn from(event: BreakerEvent) -> Self {
        match event.to {
            State::Open => Self::Opened {
                cause: event.cause,
                open_for: event.open_for,
            },
            State::HalfOpen => Self::HalfOpened,
            State::Closed => Self::Closed { cause: event.cause },
        }
    }
}

fn received<T: Clone + Send + 'static>(events: broadcast::Receiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(events, |mut events| async move {
        loop {
            match events.recv().await {
                Ok(event) => return Some((event, events)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}
