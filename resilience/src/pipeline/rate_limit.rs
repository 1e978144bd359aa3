//! A quota for outbound calls.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    context::Context,
    error::PipelineError,
    kinds::{Kinds, OrCostLimited, OrRateLimited},
    layer::{Layer, Next},
};
use crate::{
    client::ClientKey,
    clock::Clock,
    policy::{InvalidLimit, Limit},
    store::{MemoryStore, Quota, Take},
};

/// How many calls go out in a window, over all callers or by key. Clones share the counts.
///
/// It counts in this process: three instances of a service let three times the limit pass. Memory is bounded: 10,000 keys
/// that still matter are kept, and those on top share one count. A call that is refused consumes nothing.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::{Limit, pipeline::{Claim, LimitError, RateLimiter}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::local("payments", Limit::new(10, Duration::from_secs(1)))?;
/// assert!(limiter.try_acquire(Claim::new("acme").with_cost(8)).is_ok());
/// assert!(matches!(limiter.try_acquire(Claim::new("acme").with_cost(3)), Err(LimitError::RateLimited(_))));
/// assert!(limiter.try_acquire("other").is_ok());
/// assert!(matches!(limiter.try_acquire(Claim::new("x").with_cost(11)), Err(LimitError::PermitLimitExceeded(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    limit: Limit,
    quota: Quota,
    store: MemoryStore,
}

/// Keys whose counts are kept, unless there are fewer.
const KEYS: usize = 10_000;

impl RateLimiter {
    /// A limiter that counts in this process; `name` is what its refusals call it.
    ///
    /// # Errors
    ///
    /// If the limit's numbers make no quota; the error names the option.
    pub fn local(name: impl Into<Arc<str>>, limit: Limit) -> Result<Self, InvalidLimit> {
        limit.validate()?;
        Ok(Self::assemble(name.into(), limit, Clock::system()))
    }

    /// A new limiter with the same limit that lives by `clock`.
    ///
    /// For building: handles that were cloned before stay with the old counts.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self::assemble(self.shared.name.clone(), self.shared.limit, clock)
    }

    /// The limiter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Counts a call, if there is room for it. Never waits.
    ///
    /// # Errors
    ///
    /// [`LimitError::RateLimited`] if there is no room now, [`LimitError::PermitLimitExceeded`] if there never is. Nothing
    /// is counted then.
    pub fn try_acquire(&self, claim: impl Into<Claim>) -> Result<(), LimitError> {
        let Claim { key, cost } = claim.into();
        let at_once = self.shared.limit.at_once();
        if cost > at_once {
            return Err(LimitError::PermitLimitExceeded(PermitLimitExceeded {
                limiter: self.shared.name.clone(),
                cost,
                at_once,
            }));
        }
        if cost > 0 {
            self.take(key.as_deref(), cost)?;
        }
        Ok(())
    }

    fn take(&self, key: Option<&str>, cost: u32) -> Result<(), RateLimited> {
        let Shared { name, quota, store, .. } = &*self.shared;
        // Bounds what is kept of a key that comes from outside.
        let client = key.map_or_else(ClientKey::global, |key| ClientKey::custom(Some(key)));
        let client = client.as_str();
        let taken = store.take_now(&[Take { quota, client, cost }]);
        match taken.first() {
            Some(taken) if !taken.allowed => Err(RateLimited {
                limiter: name.clone(),
                retry_after: taken.retry_after,
            }),
            _ => Ok(()),
        }
    }

    fn assemble(name: Arc<str>, limit: Limit, clock: Clock) -> Self {
        let quota = Quota {
            id: name.to_string(),
            limit: limit.requests(),
            window: limit.window(),
            algorithm: limit.algorithm(),
            burst: limit.bucket(),
        };
        let store = MemoryStore::builder().capacity(KEYS).clock(clock).build();
        Self {
            shared: Arc::new(Shared {
                name,
                limit,
                quota,
                store,
            }),
        }
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.name())
            .field("limit", &self.shared.limit)
            .finish_non_exhaustive()
    }
}

/// Whose count a call goes to, and as how many calls it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    key: Option<String>,
    cost: u32,
}

impl Claim {
    /// One call on the count of `key`.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            cost: 1,
        }
    }

    /// One call on the count of all that have no key.
    #[must_use]
    pub const fn shared() -> Self {
        Self { key: None, cost: 1 }
    }

    /// As how many calls it counts. Default: 1; one of cost 0 is not counted.
    #[must_use]
    pub const fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }
}

impl From<String> for Claim {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl From<&str> for Claim {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

/// Over the rate limit: the call was not made. As a poem error it answers 429 `rate_limited`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("over the rate limit `{limiter}`")]
pub struct RateLimited {
    limiter: Arc<str>,
    retry_after: Duration,
}

impl RateLimited {
    /// How long until the same call would pass, if nobody else comes first. Never zero.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// The limiter's name.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }
}

/// The call costs more than the limit ever admits at once: waiting does not help. As a poem error it answers 429
/// `permit_limit_exceeded`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call of cost {cost} can never pass the rate limit `{limiter}` of {at_once}")]
pub struct PermitLimitExceeded {
    limiter: Arc<str>,
    cost: u32,
    at_once: u32,
}

impl PermitLimitExceeded {
    /// The limiter's name.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }
}

/// Why a [`RateLimiter`] refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum LimitError {
    /// No room now.
    RateLimited(#[from] RateLimited),
    /// Never room for this.
    PermitLimitExceeded(#[from] PermitLimitExceeded),
}

/// Counts every call alike. See [`Builder::rate_limit`](super::Builder::rate_limit).
#[derive(Clone, Debug)]
pub struct RateLimit(pub(super) RateLimiter);

impl<T: Send, E: Send, K: Kinds> Layer<T, E, K> for RateLimit {
    type Kinds = OrRateLimited<K>;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        self.0.take(None, 1).map_err(PipelineError::RateLimited)?;
        next.run().await.map_err(PipelineError::widen::<Self::Kinds>)
    }
}

/// Counts by key and cost. See [`Builder::rate_limit_by`](super::Builder::rate_limit_by).
#[derive(Clone, Debug)]
pub struct RateLimitBy<F> {
    pub(super) limiter: RateLimiter,
    pub(super) claim: F,
}

impl<T, E, K, F, C> Layer<T, E, K> for RateLimitBy<F>
where
    T: Send,
    E: Send,
    K: Kinds,
    F: Fn(&Context) -> C + Send + Sync,
    C: Into<Claim>,
{
    type Kinds = OrCostLimited<K>;

    async fn around(
        &self,
        context: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> Result<T, PipelineError<E, Self::Kinds>> {
        self.limiter
            .try_acquire((self.claim)(context))
            .map_err(|refused| match refused {
                LimitError::RateLimited(limited) => PipelineError::RateLimited(limited),
                LimitError::PermitLimitExceeded(over) => PipelineError::PermitLimitExceeded(over),
            })?;
        next.run().await.map_err(PipelineError::widen::<Self::Kinds>)
    }
}
