//! What the attribute says, as constant data.

use std::time::Duration;

use crate::{
    breaker::CircuitBreaker,
    concurrency::ConcurrencyLimit,
    dependency::{Dependencies, Owner, Places},
    pipeline::Retry,
};

/// The strategies of one fn.
#[derive(Debug)]
pub struct Outbound {
    module: &'static str,
    function: &'static str,
    breaker: Option<&'static str>,
    pub(super) timeout: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
    retry: Option<OutboundRetry>,
    bulkhead: Option<OutboundBulkhead>,
}

/// `retry(…)`
#[derive(Debug)]
pub struct OutboundRetry {
    retries: u32,
    backoff: Option<Duration>,
    max_backoff: Option<Duration>,
    budget: Option<&'static str>,
}

/// `bulkhead(…)`
#[derive(Debug)]
pub struct OutboundBulkhead {
    places: Places,
    name: Option<&'static str>,
}

impl Outbound {
    /// The call as it is.
    #[must_use]
    pub const fn new(module: &'static str, function: &'static str) -> Self {
        Self {
            module,
            function,
            breaker: None,
            timeout: None,
            attempt_timeout: None,
            retry: None,
            bulkhead: None,
        }
    }

    /// The breaker of this dependency.
    #[must_use]
    pub const fn with_breaker(mut self, name: &'static str) -> Self {
        self.breaker = Some(name);
        self
    }

    /// The time of the whole call.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The time of each attempt.
    #[must_use]
    pub const fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Failed attempts are made again.
    #[must_use]
    pub const fn with_retry(mut self, retry: OutboundRetry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// A bound on the calls in flight.
    #[must_use]
    pub const fn with_bulkhead(mut self, bulkhead: OutboundBulkhead) -> Self {
        self.bulkhead = Some(bulkhead);
        self
    }

    pub(super) fn breaker(&self, dependencies: &Dependencies) -> Option<CircuitBreaker> {
        self.breaker.map(|name| dependencies.breaker(name))
    }

    pub(super) fn retry(&'static self, dependencies: &Dependencies) -> Option<Retry> {
        let spec = self.retry.as_ref()?;
        let budget = dependencies.budget_of(self.owner(spec.budget));
        let mut retry = Retry::new(spec.retries).with_budget(budget);
        if let Some(backoff) = spec.backoff {
            retry = retry.with_base_delay(backoff);
        }
        if let Some(backoff) = spec.max_backoff {
            retry = retry.with_max_delay(backoff);
        }
        Some(retry)
    }

    pub(super) fn bulkhead(&'static self, dependencies: &Dependencies) -> Option<ConcurrencyLimit> {
        let spec = self.bulkhead.as_ref()?;
        let owner = self.owner(spec.name);
        Some(dependencies.bulkhead_of(owner, spec.places, || match owner {
            Owner::Named(name) => name.into(),
            Owner::Fn(_) => format!("{}::{}", self.module, self.function).into(),
        }))
    }

    /// Whose a budget or a bulkhead is: its own name's, else the dependency's, else this fn's.
    fn owner(&'static self, name: Option<&'static str>) -> Owner {
        match name.or(self.breaker) {
            Some(name) => Owner::Named(name),
            // Two methods of one name in one module have the same path, but never the same static.
            None => Owner::Fn(std::ptr::from_ref(self).addr()),
        }
    }
}

impl OutboundRetry {
    /// Up to this many attempts after the first one.
    #[must_use]
    pub const fn new(retries: u32) -> Self {
        Self {
            retries,
            backoff: None,
            max_backoff: None,
            budget: None,
        }
    }

    /// The longest first wait.
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Duration) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// The longest wait of all.
    #[must_use]
    pub const fn with_max_backoff(mut self, backoff: Duration) -> Self {
        self.max_backoff = Some(backoff);
        self
    }

    /// Takes the tokens from the budget of this name.
    #[must_use]
    pub const fn with_budget(mut self, name: &'static str) -> Self {
        self.budget = Some(name);
        self
    }
}

impl OutboundBulkhead {
    /// At most this many calls in flight.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            places: Places {
                limit,
                queue: 0,
                queue_timeout: None,
            },
            name: None,
        }
    }

    /// How many calls may wait for a place.
    #[must_use]
    pub const fn with_queue(mut self, queue: u32) -> Self {
        self.places.queue = queue;
        self
    }

    /// How long they may.
    #[must_use]
    pub const fn with_queue_timeout(mut self, timeout: Duration) -> Self {
        self.places.queue_timeout = Some(timeout);
        self
    }

    /// Shares the places among all fns that use the name with the same numbers.
    #[must_use]
    pub const fn with_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }
}
