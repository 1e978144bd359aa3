//! A circuit breaker: stops asking what keeps failing, and finds out by itself when it is well again.
//!
//! [`CircuitBreaker`] stands alone: put one in front of any dependency.
//!
//! ```
//! use resilience::breaker::{BreakerConfig, CallError, CircuitBreaker, State};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let payments = CircuitBreaker::new("payments", BreakerConfig::default().with_failures_in_a_row(2))?;
//!
//! async fn charge() -> Result<(), std::io::Error> {
//!     Err(std::io::ErrorKind::ConnectionRefused.into())
//! }
//!
//! for _ in 0..2 {
//!     assert!(matches!(payments.call(charge()).await, Err(CallError::Inner(_))));
//! }
//! assert_eq!(payments.state(), State::Open);
//!
//! // From here on the answer is instant, until five seconds later one call is let in to try.
//! assert!(matches!(payments.call(charge()).await, Err(CallError::Open(_))));
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! - **Closed → open** after a number of failures in a row, at a failure rate over a sliding window, or at a rate of slow
//!   calls.
//! - **Open → half-open** when the open time is over and the next call asks: that call is the first probe.
//! - **Half-open** lets in exactly the configured number of probes, whatever the concurrency. All succeeded: closed, all
//!   counts at zero. One failed, or was slow: open again, for the whole open time.
//! - A result counts only in the state that its call was let in to. Late ones change nothing, good or bad.
//! - A probe that is cancelled gives its slot back; one that never answers loses it when its lease ends.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, broadcast};

pub(crate) use self::orders::{Held, News, Order};
use self::{
    permit::Handle,
    state::{Machine, Ticket},
};
use crate::clock::Clock;

mod config;
mod error;
mod event;
#[cfg(test)]
pub(crate) mod model;
mod orders;
mod permit;
mod probe;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod tie;
mod window;
mod word;

pub use self::{
    config::{BreakerConfig, ConfigError, MAX_WINDOW_CALLS, MIN_WINDOW_TIME, RateWindow},
    error::{CallError, CircuitOpen},
    event::{BreakerEvent, Cause, Outcome, State},
    permit::Permit,
};

/// Events that wait for a slow reader; then it loses the oldest.
const EVENTS_KEPT: usize = 64;

/// A circuit breaker. Clones are handles on the same circuit.
///
/// See the [module](self) for its rules and an example.
#[derive(Clone)]
pub struct CircuitBreaker {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    machine: Machine,
    clock: Clock,
    supervised: bool,
    events: broadcast::Sender<BreakerEvent>,
    /// Who speaks with other instances for it, if anybody does.
    wake: ArcSwapOption<Notify>,
    /// Whether a call was refused lately.
    wanted: AtomicBool,
}

impl CircuitBreaker {
    /// A closed breaker; `name` is what its events call it.
    ///
    /// # Errors
    ///
    /// If an option of `config` makes no sense; the error names it.
    pub fn new(name: impl Into<Arc<str>>, config: BreakerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let events = broadcast::Sender::new(EVENTS_KEPT);
        Ok(Self::assemble(name.into(), config, Clock::system(), false, events))
    }

    /// A new breaker with this one's name and settings that lives by `clock`.
    ///
    /// For building: handles that were cloned before stay with the old breaker.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        let Shared {
            supervised, ref events, ..
        } = *self.shared;
        self.rebuilt(clock, supervised, events.clone())
    }

    /// A new breaker with this one's name and settings that leaves probing to a task in the background.
    ///
    /// Until that task has closed it, [`try_acquire`](Self::try_acquire) refuses everybody, without even looking at the
    /// clock: no caller pays for a probe. The task waits for [`probe_in`](Self::probe_in) and then uses
    /// [`try_acquire_probe`](Self::try_acquire_probe). Without such a task the circuit never closes again.
    ///
    /// For building: handles that were cloned before stay with the old breaker.
    #[must_use]
    pub fn supervised(self) -> Self {
        let Shared {
            ref clock, ref events, ..
        } = *self.shared;
        self.rebuilt(clock.clone(), true, events.clone())
    }

    /// A new breaker with this one's name and settings that shares the channel of its events with others.
    #[must_use]
    pub(crate) fn with_events(self, events: broadcast::Sender<BreakerEvent>) -> Self {
        let Shared {
            ref clock, supervised, ..
        } = *self.shared;
        self.rebuilt(clock.clone(), supervised, events)
    }

    /// The breaker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where the circuit stands now. An open circuit stays open until a call or a prober asks, however late.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.machine.state()
    }

    /// Whether [`try_acquire`](Self::try_acquire) would let a call in now. Looks, and takes no slot.
    #[inline]
    #[must_use]
    pub fn is_available(&self) -> bool {
        if self.state() == State::Closed {
            return true;
        }
        let is_available = !self.shared.supervised && self.probe_in().is_none_or(|wait| wait.is_zero());
        if !is_available {
            // Whoever looks wants it closed, as much as whoever calls.
            self.shared.refused();
        }
        is_available
    }

    /// How [`try_acquire`](Self::try_acquire) would refuse a call now; `None` if it would not.
    pub(crate) fn refusal(&self) -> Option<CircuitOpen> {
        (!self.is_available()).then(|| CircuitOpen::new(self.open_remaining().filter(|wait| !wait.is_zero())))
    }

    /// How long the circuit stays open, zero once a probe is due; `None` while it is closed or half-open, and while an
    /// operator holds it open.
    #[must_use]
    pub fn open_remaining(&self) -> Option<Duration> {
        let wait = self.shared.machine.due_in(self.shared.clock.nanos());
        wait.map(Duration::from_nanos)
    }

    /// Lets a call in, if the circuit allows one.
    ///
    /// # Errors
    ///
    /// If the circuit is open, or half-open with all its probes under way.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, CircuitOpen> {
        let ticket = self.shared.admit()?;
        Ok(Permit::new(Handle::Borrowed(&self.shared), ticket))
    }

    /// [`try_acquire`](Self::try_acquire) with a permit that can move to another task.
    ///
    /// # Errors
    ///
    /// If the circuit is open, or half-open with all its probes under way.
    pub fn try_acquire_owned(&self) -> Result<Permit<'static>, CircuitOpen> {
        let ticket = self.shared.admit()?;
        Ok(Permit::new(Handle::Owned(self.shared.clone()), ticket))
    }

    /// [`try_acquire`](Self::try_acquire) for the prober of a [`supervised`](Self::supervised) breaker.
    ///
    /// # Errors
    ///
    /// If no probe is due yet, or all are under way.
    pub fn try_acquire_probe(&self) -> Result<Permit<'_>, CircuitOpen> {
        let ticket = self.shared.admit_probe()?;
        Ok(Permit::new(Handle::Borrowed(&self.shared), ticket))
    }

    /// How long until a probe can be let in: the rest of the open time, or until a probe's slot is free at the latest.
    /// `None` while the circuit is closed.
    #[must_use]
    pub fn probe_in(&self) -> Option<Duration> {
        if self.state() == State::Closed {
            return None;
        }
        self.shared
            .machine
            .admits_in(self.shared.clock.nanos())
            .map(Duration::from_nanos)
    }

    /// Runs `future` if the circuit lets it in, and counts `Ok` as a success and `Err` as a failure.
    ///
    /// # Errors
    ///
    /// [`CallError::Open`] if the circuit refused, and `future` was not polled; [`CallError::Inner`] if it failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call drops `future` and counts as [`Outcome::Neutral`], and so does a panic in it.
    pub async fn call<T, E>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T, CallError<E>> {
        self.call_with(future, |result| Outcome::from(result)).await
    }

    /// [`call`](Self::call) for results whose outcome is not simply `Ok` or `Err`: an error that is the caller's own
    /// fault says nothing about what stands behind the breaker.
    ///
    /// ```
    /// use resilience::breaker::{CircuitBreaker, Outcome, State};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let users = CircuitBreaker::new("users", Default::default())?;
    /// let not_found = users.call_with(async { Err::<(), u16>(404) }, |result| match result {
    ///     Ok(_) => Outcome::Success,
    ///     Err(400..500) => Outcome::Neutral,
    ///     Err(_) => Outcome::Failure,
    /// });
    /// assert!(not_found.await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), whatever the outcome.
    ///
    /// # Cancel safety
    ///
    /// As [`call`](Self::call).
    pub async fn call_with<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
        classify: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        let permit = self.try_acquire()?;
        let result = future.await;
        permit.record(classify(&result));
        result.map_err(CallError::Inner)
    }

    /// Counts a success that no permit was taken for.
    ///
    /// It belongs to the circuit as it is now, and counts only while that is closed: it never settles a probe.
    pub fn record_success(&self) {
        self.shared.report(Outcome::Success);
    }

    /// Counts a failure that no permit was taken for. Whether this very report opened the circuit.
    ///
    /// It belongs to the circuit as it is now, and counts only while that is closed: it never settles a probe.
    pub fn record_failure(&self) -> bool {
        self.shared.report(Outcome::Failure)
    }

    /// The changes of state from now on, in order. A reader that falls 64 behind loses the oldest and is told so; it
    /// never holds up the breaker.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<BreakerEvent> {
        self.shared.events.subscribe()
    }

    fn rebuilt(&self, clock: Clock, supervised: bool, events: broadcast::Sender<BreakerEvent>) -> Self {
        let Shared {
            ref name, ref machine, ..
        } = *self.shared;
        Self::assemble(name.clone(), machine.config().clone(), clock, supervised, events)
    }

    fn assemble(
        name: Arc<str>,
        config: BreakerConfig,
        clock: Clock,
        supervised: bool,
        events: broadcast::Sender<BreakerEvent>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                machine: Machine::new(config),
                clock,
                supervised,
                events,
                wake: ArcSwapOption::empty(),
                wanted: AtomicBool::new(false),
            }),
        }
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Shared {
    #[inline]
    fn admit(&self) -> Result<Ticket, CircuitOpen> {
        match self.machine.admit_call(|| self.clock.nanos()) {
            Some(ticket) => Ok(ticket),
            None if self.supervised => Err(CircuitOpen::new(None)),
            None => self.admit_probe(),
        }
    }

    fn admit_probe(&self) -> Result<Ticket, CircuitOpen> {
        let ticket = self
            .machine
            .admit(|| self.clock.nanos())
            .inspect_err(|_| self.refused())?;
        self.publish();
        Ok(ticket)
    }

    #[inline]
    fn settle(&self, ticket: Ticket, outcome: Outcome) -> Option<State> {
        let entered = self.machine.settle(ticket, outcome, || self.clock.nanos())?;
        self.publish();
        Some(entered)
    }

    fn report(&self, outcome: Outcome) -> bool {
        match self.machine.admit_call(|| self.clock.nanos()) {
            Some(ticket) => self.settle(ticket, outcome) == Some(State::Open),
            None => false,
        }
    }
}
