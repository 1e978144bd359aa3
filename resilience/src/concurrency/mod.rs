//! Load shedding: so many in flight at most, a short queue, and an instant refusal beyond it.
//!
//! `concurrency(64, queue = 16)` in the attribute puts one of these before a handler. [`ConcurrencyLimit`] also stands
//! alone, before anything that can be overloaded.
//!
//! ```
//! use resilience::concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority, Shed};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reports = ConcurrencyLimit::new("reports", ConcurrencyConfig::new(1).with_queue(1))?;
//!
//! let slot = reports.acquire(Priority::Default).await?;
//! // The only slot is taken: the next waits, and finds none within the 100 ms that it may.
//! let late = reports.acquire(Priority::Default).await.unwrap_err();
//! assert_eq!(late.reason(), Shed::QueueTimeout);
//!
//! drop(slot);
//! assert!(reports.try_acquire().is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! - At most `limit` slots are held at once, whatever the concurrency.
//! - Those who wait are served by priority, then first come, first served. Nobody passes them.
//! - Who has gone, and whose time is spent (its wait, or the [deadline](crate::deadline) that it is under), is passed over.
//! - A full queue makes room for a higher priority: the newest of the lowest is shed at once.
//! - A slot that was granted to somebody who has gone meanwhile goes to the next.

mod adaptive;
mod config;
mod overloaded;
mod priority;
mod slots;
mod state;
mod sync;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use self::{adaptive::Limiter, slots::Slots, state::State};
pub use self::{
    config::{ConcurrencyConfig, ConfigError},
    overloaded::{Overloaded, Shed},
    priority::{Priority, UnknownPriority},
    slots::Slot,
};
use crate::{clock::Clock, deadline};

/// A limit of what is in flight at once. Clones are handles on the same slots.
///
/// See the [module](self) for its rules and an example.
#[derive(Clone)]
pub struct ConcurrencyLimit {
    name: Arc<str>,
    config: ConcurrencyConfig,
    slots: Arc<Slots>,
}

impl ConcurrencyLimit {
    /// A limit with all slots free; `name` is what metrics call it.
    ///
    /// # Errors
    ///
    /// If an option of `config` makes no sense; the error names it.
    pub fn new(name: impl Into<Arc<str>>, config: ConcurrencyConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::assemble(name.into(), config, Clock::system()))
    }

    /// A new limit with this one's name and settings that measures by `clock`. Waits in the queue go by tokio's time.
    ///
    /// For building: handles that were cloned before stay with the old limit.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self::assemble(self.name, self.config, clock)
    }

    /// The limit's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its settings.
    #[must_use]
    pub const fn config(&self) -> &ConcurrencyConfig {
        &self.config
    }

    /// How many may be in flight now: less than was configured while an adaptive limit holds back.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.slots.state().limit()
    }

    /// How many slots are held.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.slots.state().in_flight()
    }

    /// How many wait.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.slots.state().queued()
    }

    /// How many were shed for this reason so far.
    #[must_use]
    pub fn shed(&self, reason: Shed) -> u64 {
        self.slots.state().shed(reason)
    }

    /// A slot: at once, or after a wait of at most the queue's time-out and what is left of the enclosing
    /// [deadline](crate::deadline).
    ///
    /// # Errors
    ///
    /// If there is none, or not in time.
    ///
    /// # Cancel safety
    ///
    /// Safe: the place in the queue is given up, and a slot that was granted meanwhile goes to the next.
    pub async fn acquire(&self, priority: Priority) -> Result<Slot, Overloaded> {
        let timeout = self.config.queue_timeout();
        let until = || {
            let own = Instant::now() + timeout;
            deadline::current().map_or(own, |at| at.min(own))
        };
        self.slots.enter(priority, until).await.map_err(Overloaded::new)
    }

    /// A slot, if one is free and nobody waits for it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn try_acquire(&self) -> Result<Slot, Overloaded> {
        let slot = self.slots.try_enter();
        slot.ok_or_else(|| Overloaded::new(self.slots.refuse()))
    }

    fn assemble(name: Arc<str>, config: ConcurrencyConfig, clock: Clock) -> Self {
        let limiter = config
            .is_adaptive()
            .then(|| Limiter::new(config.floor(), config.limit()));
        let limit = limiter.as_ref().map_or(config.limit(), Limiter::limit);
        let state = State::new(limit, config.queue());
        Self {
            name,
            config,
            slots: Arc::new(Slots::new(state, limiter.map(|limiter| (limiter, clock)))),
        }
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.slots.state();
        f.debug_struct("ConcurrencyLimit")
            .field("name", &self.name)
            .field("limit", &state.limit())
            .field("in_flight", &state.in_flight())
            .field("queued", &state.queued())
            .finish_non_exhaustive()
    }
}
