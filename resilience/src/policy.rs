//! What a handler's attribute says, as `const` data.
//!
//! The macro emits one `static` [`Policy`] per handler and nothing else of weight. A policy holds no state and knows
//! neither store nor breaker; a [`Resilience`](crate::Resilience) binds it to both.

use std::time::Duration;

use crate::guard::Guard;

/// The guards of one handler, as its `#[resilient(…)]` attribute declares them.
///
/// Policies register themselves at link time; [`Resilience::policies`](crate::Resilience::policies) lists them.
#[derive(Debug)]
pub struct Policy {
    name: &'static str,
    module: &'static str,
    rate_limits: &'static [RateLimit],
    flags: &'static [Flag],
    auth: Option<Auth>,
    guards: &'static [&'static dyn Guard],
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
            rate_limits: &[],
            flags: &[],
            auth: None,
            guards: &[],
            deadline: None,
            breaker: None,
        }
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

/// `auth = "fail_closed"`: the caller must be verified, and an unverifiable one is refused.
///
/// There is no `fail_open`: it would be an authentication bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth {
    pub(crate) header: Option<&'static str>,
    pub(crate) deadline: Option<Duration>,
}

impl Auth {
    /// Refuses whoever cannot be verified.
    #[must_use]
    pub const fn fail_closed() -> Self {
        Self {
            header: None,
            deadline: None,
        }
    }

    /// Reads the credential from `header` (lower case) instead of the builder's.
    #[must_use]
    pub const fn with_header(mut self, header: &'static str) -> Self {
        self.header = Some(header);
        self
    }

    /// Bounds the look-up; the default is the builder's (150 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// `flag("checkout", default = false)`: a switch that an operator turns while the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    pub(crate) name: &'static str,
    pub(crate) default: bool,
    pub(crate) blocks_when: bool,
    pub(crate) stale: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
}

impl Flag {
    /// A kill switch: blocks while it is on, and counts as `default` while it cannot be read.
    #[must_use]
    pub const fn new(name: &'static str, default: bool) -> Self {
        Self {
            name,
            default,
            blocks_when: true,
            stale: None,
            deadline: None,
        }
    }

    /// Blocks while the flag has this value: `true` for a kill switch, `false` for a feature gate.
    #[must_use]
    pub const fn with_blocks_when(mut self, on: bool) -> Self {
        self.blocks_when = on;
        self
    }

    /// How long the last known value may serve in an outage before the default does.
    #[must_use]
    pub const fn with_stale(mut self, stale: Duration) -> Self {
        self.stale = Some(stale);
        self
    }

    /// Bounds the look-up; the default is the builder's (100 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The flag's name in the store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// `rate_limit(30, 60)`: a quota of requests in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub(crate) limit: u32,
    pub(crate) window: Duration,
    pub(crate) key: Key,
    pub(crate) algorithm: Algorithm,
    pub(crate) burst: Option<u32>,
    pub(crate) cost: u32,
    pub(crate) on_outage: OnOutage,
    pub(crate) name: Option<&'static str>,
    pub(crate) deadline: Option<Duration>,
}

impl RateLimit {
    /// `limit` requests in `window`, per client address, on a sliding window, failing open.
    #[must_use]
    pub const fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            key: Key::Ip,
            algorithm: Algorithm::SlidingWindow,
            burst: None,
            cost: 1,
            on_outage: OnOutage::FailOpen,
            name: None,
            deadline: None,
        }
    }

    /// Who shares the quota.
    #[must_use]
    pub const fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// How requests are counted.
    #[must_use]
    pub const fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// How much a token bucket holds, that is, lets pass at once: 1 to the limit, which is the default. Other algorithms
    /// have no burst, and ignore it.
    #[must_use]
    pub const fn with_burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// As how many requests one counts: 1 (the default) to the limit, or to the burst of a token bucket. More than that
    /// counts as that.
    #[must_use]
    pub const fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// The burst that applies.
    pub(crate) fn burst(&self) -> u32 {
        self.burst.unwrap_or(self.limit).min(self.limit)
    }

    /// What happens while the store cannot tell.
    #[must_use]
    pub const fn with_on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// Shares the quota among all handlers that name it so.
    #[must_use]
    pub const fn with_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Bounds the store's answer; the default is the builder's (80 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// Who shares a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// One bucket per client address (IPv6: per prefix).
    Ip,
    /// One bucket per verified user.
    User,
    /// One bucket for everybody.
    Global,
    /// One bucket per value of this header (lower case). Anybody can claim any value: it limits, it does not identify.
    Header(&'static str),
}

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The count of the current window plus the share of the previous one that still overlaps.
    SlidingWindow,
    /// One count per window, aligned to the clock. Up to twice the limit may pass across a boundary.
    FixedWindow,
    /// A bucket of `burst` tokens that gains `limit` of them per window, evenly (GCRA). No more than the burst and what
    /// was gained meanwhile ever passes: up to the burst and the limit together in one window.
    TokenBucket,
}

/// What a quota answers while the store cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// Let the request pass, and say so in a header.
    FailOpen,
    /// Refuse with 503.
    FailClosed,
    /// Count in this process until the store is back.
    FailLocal,
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
