use std::{fmt, sync::Arc};

use super::Shared;
use crate::breaker::Outcome;

/// A place among the requests in flight. Dropping it frees the place and hands it on.
///
/// ```
/// use resilience::{
///     breaker::Outcome,
///     concurrency::{Adaptive, ConcurrencyConfig, ConcurrencyLimit, Priority},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ConcurrencyConfig::new(64).with_adaptive(Adaptive::default());
/// let limit = ConcurrencyLimit::new("search", config)?;
///
/// let mut slot = limit.acquire(Priority::Default).await?;
/// let response = "the handler's work";
/// slot.served(Outcome::Success);
/// // What a slow reader takes to receive the response says nothing about the service.
/// assert_eq!((response, limit.in_flight()), ("the handler's work", 1));
/// drop(slot);
/// assert_eq!(limit.in_flight(), 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "a slot that is dropped gives its place back"]
pub struct Slot {
    shared: Arc<Shared>,
    /// When its holder got it, in nanoseconds; `None` once served, and where nothing adapts to it.
    started: Option<u64>,
    /// Whether its work is done and counted as such.
    sending: bool,
}

impl Slot {
    /// The place must have been taken already.
    #[inline]
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let adaptive = shared.config.adaptive.is_some();
        Self {
            started: adaptive.then(|| shared.clock.nanos()),
            sending: false,
            shared,
        }
    }

    /// The work is done, while the place stays held: its time ends here. Only an
    /// [adaptive](super::ConcurrencyConfig::with_adaptive) limit makes use of it, and only of the first call.
    ///
    /// [`Outcome::Success`] is a latency that counts. [`Outcome::Failure`] says that there was too much to do, as a
    /// timeout does; another error is an answer like any other, a success here. [`Outcome::Neutral`] is ignored.
    ///
    /// A slot that is dropped before was given up: its request would have taken longer still. That counts where it took
    /// longer than a healthy one already, so that an overload shows whose clients all leave, and else not.
    ///
    /// What is held beyond this, while an answer is sent, counts towards the configured limit and not towards the adaptive
    /// one, which is about work.
    ///
    /// The time starts when the slot is handed out, so that waiting in the queue is no part of it.
    pub fn served(&mut self, outcome: Outcome) {
        let Some(started) = self.started.take() else { return };
        let failed = match outcome {
            Outcome::Success => Some(false),
            Outcome::Failure => Some(true),
            Outcome::Neutral => None,
        };
        self.sending = true;
        let ended = self.shared.clock.nanos();
        self.shared.semaphore.with(|state| {
            if let Some(failed) = failed {
                state.sample(started, ended, failed);
            }
            state.send(|| ended);
        });
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        let Shared { semaphore, clock, .. } = &*self.shared;
        match self.started {
            None if self.sending => semaphore.with(|state| state.release_sent(|| clock.nanos())),
            None => semaphore.release(|| clock.nanos()),
            Some(started) => {
                let now = clock.nanos();
                semaphore.with(|state| {
                    state.cut_off(started, now);
                    state.release(|| now);
                });
            }
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}
