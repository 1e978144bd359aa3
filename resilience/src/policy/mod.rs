//! What a handler's attribute says, as `const` data.
//!
//! The macro emits one `static` [`Policy`] per handler and nothing else of weight. A policy holds no state and knows
//! neither store nor breaker; a [`Resilience`](crate::Resilience) binds it to both.

mod auth;
mod concurrency;
mod flag;
mod key;
mod limit;
mod lockout;
mod place;
mod rate_limit;

use std::time::Duration;

pub use self::{
    auth::Auth,
    concurrency::Concurrency,
    flag::Flag,
    key::{Key, KeyFn},
    limit::{InvalidLimit, Limit},
    lockout::{AccountField, Lockout, LockoutKey},
    rate_limit::{Algorithm, RateLimit},
};
use crate::{concurrency::Priority, guard::Guard};

/// The guards of one handler, as its `#[resilient(…)]` attribute declares them.
///
/// Policies register themselves at link time; [`Resilience::policies`](crate::Resilience::policies) lists them.
#[derive(Debug)]
pub struct Policy {
    name: &'static str,
    module: &'static str,
    /// The type name of an item beside the handler: its path tells the fn in which both are.
    marker: Option<fn() -> &'static str>,
    rate_limits: &'static [RateLimit],
    flags: &'static [Flag],
    auth: Option<Auth>,
    guards: &'static [&'static dyn Guard],
    lockouts: &'static [Lockout],
    concurrency: Option<Concurrency>,
    priority: Priority,
    deadline: Option<Duration>,
    breaker: Option<BreakerChoice>,
}

impl Policy {
    /// An empty policy for the handler `name` in `module`.
    #[must_use]
    pub const fn new(module: &'static str, name: &'static str) -> Self {
        Self {
            name,
            module,
            marker: None,
            rate_limits: &[],
            flags: &[],
            auth: None,
            guards: &[],
            lockouts: &[],
            concurrency: None,
            priority: Priority::Default,
            deadline: None,
            breaker: None,
        }
    }

    /// Tells where the handler is by the [`type_name`](std::any::type_name) of an item beside it, so that handlers of one
    /// name in different fns of a module are told apart.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_marker(mut self, marker: fn() -> &'static str) -> Self {
        self.marker = Some(marker);
        self
    }

    /// Sets the quotas, in the order in which they were written.
    #[must_use]
    pub const fn with_rate_limits(mut self, rate_limits: &'static [RateLimit]) -> Self {
        self.rate_limits = rate_limits;
        self
    }

    /// Sets the flags, in the order in which they were written.
    #[must_use]
    pub const fn with_flags(mut self, flags: &'static [Flag]) -> Self {
        self.flags = flags;
        self
    }

    /// Requires a verified caller.
    #[must_use]
    pub const fn with_auth(mut self, auth: Auth) -> Self {
        self.auth = Some(auth);
        self
    }

    /// Sets the guards of the user's own, in the order in which they were written.
    #[must_use]
    pub const fn with_guards(mut self, guards: &'static [&'static dyn Guard]) -> Self {
        self.guards = guards;
        self
    }

    /// Sets the lockouts, in the order in which they were written.
    #[must_use]
    pub const fn with_lockouts(mut self, lockouts: &'static [Lockout]) -> Self {
        self.lockouts = lockouts;
        self
    }

    /// Bounds the requests in flight.
    #[must_use]
    pub const fn with_concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Sets who is served first, and shed last. [`Priority::Default`] without it.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the budget of the handler and of all it calls.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Overrides the builder's choice of breakers.
    #[must_use]
    pub const fn with_breaker(mut self, breaker: BreakerChoice) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// The handler's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The path of the module that holds the handler.
    #[must_use]
    pub const fn module(&self) -> &'static str {
        self.module
    }

    /// The path of the module that holds the handler, or of the fn if the handler is inside one.
    ///
    /// It owns the handler's unnamed quotas, lockouts and slots. Inside a fn it follows the compiler's
    /// [`type_name`](std::any::type_name), so it may change with the compiler.
    #[must_use]
    pub fn place(&self) -> &'static str {
        self.marker
            .map_or(self.module, |marker| place::of(marker(), self.module))
    }

    /// The handler's place and name.
    pub(crate) fn path(&self) -> String {
        format!("{}::{}", self.place(), self.name)
    }

    /// The quotas, in the order in which they were written.
    #[must_use]
    pub const fn rate_limits(&self) -> &'static [RateLimit] {
        self.rate_limits
    }

    /// The flags, in the order in which they were written.
    #[must_use]
    pub const fn flags(&self) -> &'static [Flag] {
        self.flags
    }

    /// How the caller is verified; `None` lets anybody in.
    #[must_use]
    pub const fn auth(&self) -> Option<&Auth> {
        self.auth.as_ref()
    }

    /// The guards of the user's own, in the order in which they were written.
    #[must_use]
    pub const fn guards(&self) -> &'static [&'static dyn Guard] {
        self.guards
    }

    /// The lockouts, in the order in which they were written.
    #[must_use]
    pub const fn lockouts(&self) -> &'static [Lockout] {
        self.lockouts
    }

    /// The bound of the requests in flight; `None` is unlimited.
    #[must_use]
    pub const fn concurrency(&self) -> Option<&Concurrency> {
        self.concurrency.as_ref()
    }

    /// Who is served first, and shed last.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The budget of the handler and of all it calls; `None` is unlimited.
    #[must_use]
    pub const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Which breakers stand before the store; `None` leaves it to the builder.
    #[must_use]
    pub const fn breaker(&self) -> Option<BreakerChoice> {
        self.breaker
    }
}

/// What a quota or a lockout answers while the store cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// Let the request pass, and say so in a header.
    FailOpen,
    /// Refuse with 503.
    FailClosed,
    /// Count in this process until the store is back.
    FailLocal,
}

/// Whether a guard decides, or only says what it would have decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It is asked and counts, and the request passes whatever it says: what it would have done is in the log and in the
    /// metrics, and in no header. A request waits for its answer as for any other, up to the deadline of the guard.
    Observe,
}

/// Which circuit breakers stand between a policy and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChoice {
    /// One breaker for all operations of all handlers.
    Shared,
    /// One breaker per operation: `auth`, `flag`, `rate_limit`.
    PerOperation,
    /// A breaker of this name, for all operations of the handlers that name it.
    Named(&'static str),
}
