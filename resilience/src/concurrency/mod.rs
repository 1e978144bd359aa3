//! A limit on the requests in flight: what does not fit is shed at once, so that what was let in is served in time.
//!
//! [`ConcurrencyLimit`] stands alone: put one around anything that only so many should do at a time.
//!
//! ```
//! use std::time::Duration;
//!
//! use resilience::concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority, Shed};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ConcurrencyConfig::new(1)
//!     .with_queue(1)
//!     .with_queue_timeout(Duration::from_millis(50));
//! let reports = ConcurrencyLimit::new("reports", config)?;
//!
//! let slot = reports.acquire(Priority::Default).await?;
//! assert_eq!(reports.in_flight(), 1);
//!
//! // The only place is taken: the next one waits, for 50 ms at most.
//! let late = reports.acquire(Priority::Default).await.unwrap_err();
//! assert_eq!(late.reason(), Shed::QueueTimeout);
//!
//! drop(slot);
//! assert!(reports.try_acquire(Priority::Default).is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! - At most the limit is in flight, exactly, whatever the concurrency. An adaptive limit that shrinks lets those finish
//!   that are.
//! - Places go by [`Priority`], then to who came first. Nobody overtakes a waiter of the same or a higher priority.
//! - A waiter that has gone, or whose time is spent, is skipped. Its time is the queue timeout or what is left of the
//!   caller's [deadline](mod@crate::deadline), whichever is less.
//! - A full queue sheds the newest waiter of the lowest priority to let in a request of a higher one. If there is none
//!   the newcomer is refused. Both hear of it at once.
//! - A waiter costs memory only while it waits, and at most [`queue`](ConcurrencyConfig::with_queue) of them do.

use std::{fmt, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use tokio::time::{Instant, sleep_until};

use self::semaphore::Semaphore;
use crate::{
    clock::{Clock, nanos},
    deadline,
};

mod adaptive;
mod config;
mod error;
mod estimator;
mod priority;
mod semaphore;
mod slot;
mod state;
mod sync;
#[cfg(test)]
mod tests;

pub use self::{
    adaptive::Adaptive,
    config::{ConcurrencyConfig, ConfigError, MAX_LIMIT, MAX_QUEUE, MAX_QUEUE_TIMEOUT},
    error::{Overloaded, Shed, ShedCounts},
    priority::{Priority, UnknownPriority},
    slot::Slot,
};

/// A limit on the requests in flight, with a short queue. Clones are handles on the same limit.
///
/// See the [module](self) for its rules and an example.
#[derive(Clone)]
pub struct ConcurrencyLimit {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    config: ConcurrencyConfig,
    semaphore: Semaphore,
    clock: Clock,
}

impl ConcurrencyLimit {
    /// A limit with nobody in flight; `name` is what its errors call it.
    ///
    /// # Errors
    ///
    /// If an option of `config` makes no sense; the error names it.
    pub fn new(name: impl Into<Arc<str>>, config: ConcurrencyConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::assemble(name.into(), config, Clock::system()))
    }

    /// A new limit with this one's name and settings that lives by `clock`.
    ///
    /// For building: handles that were cloned before, and their slots, stay with the old limit. What a waiter waits for
    /// is always tokio's timer; the clock decides whose time is spent when a place is handed on.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self::assemble(self.shared.name.clone(), self.shared.config.clone(), clock)
    }

    /// The limit's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &ConcurrencyConfig {
        &self.shared.config
    }

    /// How many may be in flight: what was configured, or less while an adaptive limit is below that.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.semaphore.with(|state| state.limit())
    }

    /// How many are in flight. One that was granted a place and has not woken up yet counts.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.semaphore.with(|state| state.in_flight())
    }

    /// How many wait for a place.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.shared.semaphore.with(|state| state.queued())
    }

    /// How many were shed so far, by reason. A caller that went by itself was not shed.
    #[must_use]
    pub fn shed(&self) -> ShedCounts {
        self.shared.semaphore.with(|state| state.shed())
    }

    /// Takes a place, and waits for one in the queue if need be: for the queue timeout at most, and not beyond the
    /// enclosing [deadline](mod@crate::deadline) if there is one.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] at once if there is no place in the queue either, or no time to wait; later if the place in the
    /// queue went to a request of higher priority, or the time was over.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime with its timer enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call leaves the queue; a place that was granted at that moment goes to the next waiter.
    pub async fn acquire(&self, priority: Priority) -> Result<Slot, Overloaded> {
        match self.free_slot() {
            Some(slot) => Ok(slot),
            None => self.wait(priority, deadline::current()).await,
        }
    }

    /// [`acquire`](Self::acquire) for a caller that will not wait beyond `until`, nor beyond the enclosing deadline.
    ///
    /// A place that is free is given without a look at the clock, even if `until` has passed.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_until(&self, priority: Priority, until: Instant) -> Result<Slot, Overloaded> {
        match self.free_slot() {
            Some(slot) => Ok(slot),
            None => {
                let until = deadline::current().map_or(until, |outer| outer.min(until));
                self.wait(priority, Some(until)).await
            }
        }
    }

    /// Takes a place if one is free, and never waits.
    ///
    /// A place is free only if nobody waits for it, so the priority makes no difference here; it is asked for so that
    /// both ways to a slot read alike.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] with [`Shed::QueueFull`] if none is free, whatever the queue.
    pub fn try_acquire(&self, priority: Priority) -> Result<Slot, Overloaded> {
        let _ = priority;
        self.free_slot().ok_or_else(|| {
            let reason = self.shared.semaphore.with(|state| state.refuse(Shed::QueueFull));
            self.overloaded(reason)
        })
    }

    #[inline]
    fn free_slot(&self) -> Option<Slot> {
        self.shared.semaphore.admit().then(|| self.slot())
    }

    async fn wait(&self, priority: Priority, until: Option<Instant>) -> Result<Slot, Overloaded> {
        let Shared { config, .. } = &*self.shared;
        let now = Instant::now();
        let patience = until.map_or(config.queue_timeout, |until| {
            config.queue_timeout.min(until.saturating_duration_since(now))
        });
        let queued = self
            .shared
            .semaphore
            .queue(priority, nanos(patience), || self.shared.clock.nanos())
            .map_err(|reason| self.overloaded(reason))?;
        let Some(mut waiting) = queued else {
            return Ok(self.slot());
        };
        let mut timer = pin!(sleep_until(now + patience));
        let answer = poll_fn(|cx| {
            // The answer first: a place that was granted in time is not lost to a timer that fires with it.
            let answer = waiting.poll(cx.waker());
            if answer.is_pending() && timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(waiting.expire());
            }
            answer
        })
        .await;
        match answer {
            Ok(()) => Ok(self.slot()),
            Err(reason) => Err(self.overloaded(reason)),
        }
    }

    #[inline]
    fn slot(&self) -> Slot {
        Slot::new(self.shared.clone())
    }

    #[cold]
    fn overloaded(&self, reason: Shed) -> Overloaded {
        Overloaded::new(self.shared.name.clone(), reason)
    }

    fn assemble(name: Arc<str>, config: ConcurrencyConfig, clock: Clock) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                semaphore: Semaphore::new(config.limit, config.queue, config.adaptive),
                config,
                clock,
            }),
        }
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("name", &self.name())
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}
