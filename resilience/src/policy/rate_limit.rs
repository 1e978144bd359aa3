//! `rate_limit`.

use std::time::Duration;

use super::{Key, Limit, Mode, OnOutage};

/// `rate_limit(30, 60)`: a quota of requests in a window; or `rate_limit("api")`: one whose numbers are defined elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Its own numbers; `None` if it knows a name only.
    pub(crate) limit: Option<Limit>,
    pub(crate) key: Key,
    pub(crate) cost: u32,
    /// What holds unless the limit in force says otherwise.
    pub(crate) on_outage: OnOutage,
    pub(crate) name: Option<&'static str>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) local_share: u8,
    pub(crate) mode: Mode,
}

impl RateLimit {
    /// `limit` requests in `window`, per client address, on a sliding window, failing open.
    #[must_use]
    pub const fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit: Some(Limit::new(limit, window)),
            key: Key::Ip,
            cost: 1,
            on_outage: OnOutage::FailOpen,
            name: None,
            deadline: None,
            local_share: 100,
            mode: Mode::Enforce,
        }
    }

    /// The quota of this name, whose numbers the builder, a file or the store defines; per client address, failing open.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        let mut named = Self::new(1, Duration::from_secs(1)).with_name(name);
        named.limit = None;
        named
    }

    /// Who shares the quota.
    #[must_use]
    pub const fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// How requests are counted. Nothing to a quota that knows a name only.
    #[must_use]
    pub const fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        if let Some(limit) = self.limit {
            self.limit = Some(limit.with_algorithm(algorithm));
        }
        self
    }

    /// How much a token bucket holds, that is, lets pass at once: 1 to the limit, which is the default. Other algorithms
    /// have no burst, and ignore it, as does a quota that knows a name only.
    #[must_use]
    pub const fn with_burst(mut self, burst: u32) -> Self {
        if let Some(limit) = self.limit {
            self.limit = Some(limit.with_burst(burst));
        }
        self
    }

    /// As how many requests one counts: 1 (the default) to the limit, or to the burst of a token bucket. More than that
    /// counts as that.
    #[must_use]
    pub const fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
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

    /// How many percent of the quota this process counts by itself while it fails local: 1 to 100, which is the default.
    /// For as many instances as share the quota otherwise.
    #[must_use]
    pub const fn with_local_share(mut self, percent: u8) -> Self {
        self.local_share = percent;
        self
    }

    /// Whether it decides; it does unless told otherwise.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }
}

/// How a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A window that moves with the clock.
    ///
    /// Exact for limits up to 100: the time of each admitted request is kept for one window. No span of one window sees
    /// more than the limit, and a request passes whenever there is room.
    ///
    /// Approximate for higher limits: the count of the current window plus the share of the previous one that still
    /// overlaps. At most the limit passes in a window that is aligned to the clock, and at most the limit times
    /// `1 + d / window` in any span of `d` up to a window. A client that sends evenly at the limit loses at most one
    /// request in a window. Cloudflare measured 0.003% wrong decisions with this method, over 400 million requests
    /// ("How we built rate limiting capable of scaling to millions of domains", 2017). After one window without an
    /// admitted request a client starts afresh.
    ///
    /// No wait is longer than the window.
    SlidingWindow,
    /// One count per window, aligned to the clock. Up to twice the limit may pass across a boundary.
    FixedWindow,
    /// A bucket of `burst` tokens that gains `limit` of them per window, evenly (GCRA). No more than the burst and what
    /// was gained meanwhile ever passes: up to the burst and the limit together in one window.
    TokenBucket,
}
