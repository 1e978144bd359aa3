//! The numbers of a quota.

use std::{fmt, time::Duration};

use super::{Algorithm, OnOutage};

/// How much a quota lets pass: requests in a window, and how they are counted.
///
/// Who shares the quota, and what one request costs, is the handler's to say.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::{Algorithm, Limit};
///
/// const API: Limit = Limit::new(100, Duration::from_secs(60))
///     .with_algorithm(Algorithm::TokenBucket)
///     .with_burst(20);
/// assert_eq!(API.to_string(), "100 in 60s, token bucket of 20");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    requests: u32,
    window: Duration,
    algorithm: Algorithm,
    burst: Option<u32>,
    on_outage: Option<OnOutage>,
}

/// Numbers that make no quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {reason}")]
pub struct InvalidLimit {
    pub(crate) key: &'static str,
    pub(crate) reason: &'static str,
}

impl Limit {
    /// `requests` in `window`, on a sliding window.
    #[must_use]
    pub const fn new(requests: u32, window: Duration) -> Self {
        Self {
            requests,
            window,
            algorithm: Algorithm::SlidingWindow,
            burst: None,
            on_outage: None,
        }
    }

    /// How requests are counted.
    #[must_use]
    pub const fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// How much a token bucket lets pass at once: 1 to the limit, which is the default. Other algorithms have no burst.
    #[must_use]
    pub const fn with_burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// What happens while the store cannot tell, whatever the handlers say. Theirs holds unless this is set.
    #[must_use]
    pub const fn with_on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = Some(on_outage);
        self
    }

    /// Requests in a window.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.requests
    }

    /// Length of the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How requests are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How much a token bucket lets pass at once, if that is not the limit.
    #[must_use]
    pub const fn burst(&self) -> Option<u32> {
        self.burst
    }

    /// What happens while the store cannot tell, if the handlers do not decide it.
    #[must_use]
    pub const fn on_outage(&self) -> Option<OnOutage> {
        self.on_outage
    }

    /// Checks what the types leave open.
    pub(crate) fn validate(&self) -> Result<(), InvalidLimit> {
        let invalid = |key, reason| Err(InvalidLimit { key, reason });
        if self.requests == 0 {
            return invalid("limit", "would refuse every request: write 1 or more");
        }
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&self.window) {
            return invalid("window", "must be from 1 ms to 366 days");
        }
        if !self.window.subsec_nanos().is_multiple_of(1_000_000) {
            return invalid("window", "must be whole milliseconds");
        }
        match self.burst {
            Some(_) if self.algorithm != Algorithm::TokenBucket => {
                invalid("burst", "belongs to the algorithm `token_bucket` alone")
            }
            Some(0) => invalid("burst", "would refuse every request: write 1 or more"),
            Some(burst) if burst > self.requests => invalid("burst", "must not be above the limit"),
            _ => Ok(()),
        }
    }

    /// How much passes at once at most: what one request can cost.
    pub(crate) fn at_once(&self) -> u32 {
        match self.algorithm {
            Algorithm::TokenBucket => self.bucket(),
            _ => self.requests,
        }
    }

    /// The burst that applies.
    pub(crate) fn bucket(&self) -> u32 {
        self.burst.unwrap_or(self.requests).min(self.requests)
    }

    /// Whether both count alike, whatever they do in an outage.
    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        let numbers = |limit: &Self| (limit.requests, limit.window, limit.algorithm, limit.bucket());
        numbers(self) == numbers(other)
    }
}

/// `100 in 60s`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.requests, self.window)?;
        match self.algorithm {
            Algorithm::SlidingWindow => Ok(()),
            Algorithm::FixedWindow => f.write_str(", fixed window"),
            Algorithm::TokenBucket => write!(f, ", token bucket of {}", self.bucket()),
        }
    }
}

const WINDOW_MIN: Duration = Duration::from_millis(1);
const WINDOW_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
