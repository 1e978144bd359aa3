use std::time::Duration;

use super::adaptive::Adaptive;

/// The largest limit, in requests in flight.
pub const MAX_LIMIT: u32 = 1 << 20;

/// The longest queue, in requests.
pub const MAX_QUEUE: u32 = 1 << 20;

/// The longest [queue timeout](ConcurrencyConfig::with_queue_timeout).
pub const MAX_QUEUE_TIMEOUT: Duration = Duration::from_secs(600);

/// How many requests may be in flight at once, and how many may wait for how long.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::concurrency::ConcurrencyConfig;
///
/// let config = ConcurrencyConfig::new(64)
///     .with_queue(16)
///     .with_queue_timeout(Duration::from_millis(50));
/// assert!(config.validate().is_ok());
///
/// let error = ConcurrencyConfig::new(0).validate().unwrap_err();
/// assert_eq!(error.option(), "limit");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyConfig {
    pub(super) limit: u32,
    pub(super) queue: u32,
    pub(super) queue_timeout: Duration,
    pub(super) adaptive: Option<Adaptive>,
}

impl ConcurrencyConfig {
    /// At most `limit` requests in flight, and no queue. From 1 to [`MAX_LIMIT`].
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            limit,
            queue: 0,
            queue_timeout: Duration::from_millis(100),
            adaptive: None,
        }
    }

    /// How many requests may wait for a place. Default: 0; at most [`MAX_QUEUE`].
    #[must_use]
    pub const fn with_queue(mut self, queue: u32) -> Self {
        self.queue = queue;
        self
    }

    /// How long a request may wait in the queue. Default: 100 ms; at most [`MAX_QUEUE_TIMEOUT`].
    ///
    /// Means nothing without a [queue](Self::with_queue). The timer has a resolution of one millisecond.
    #[must_use]
    pub const fn with_queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// Lets the limit follow the latency that is measured, up to the limit given. Default: it stays as it is.
    ///
    /// Somebody has to measure: see [`Slot::served`](super::Slot::served).
    #[must_use]
    pub const fn with_adaptive(mut self, adaptive: Adaptive) -> Self {
        self.adaptive = Some(adaptive);
        self
    }

    /// Checks every option.
    ///
    /// # Errors
    ///
    /// Names the first option whose value makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(
            (1..=MAX_LIMIT).contains(&self.limit),
            "limit",
            "must be from 1 to 1048576",
        )?;
        require(self.queue <= MAX_QUEUE, "queue", "must be at most 1048576")?;
        require(
            self.queue == 0 || !self.queue_timeout.is_zero(),
            "queue_timeout",
            "must be longer than zero, or nobody could wait in the queue",
        )?;
        require(
            self.queue_timeout <= MAX_QUEUE_TIMEOUT,
            "queue_timeout",
            "must be at most 10 minutes",
        )?;
        match &self.adaptive {
            Some(adaptive) => adaptive.validate(self.limit),
            None => Ok(()),
        }
    }
}

/// An option of a [`ConcurrencyConfig`] that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("concurrency option `{option}` {problem}")]
pub struct ConfigError {
    option: &'static str,
    problem: &'static str,
}

impl ConfigError {
    /// The option's name.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }
}

pub(super) fn require(holds: bool, option: &'static str, problem: &'static str) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError { option, problem })
    }
}
