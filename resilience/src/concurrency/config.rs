use std::time::Duration;

/// Most slots, and most places in a queue.
const PLACES_MAX: u32 = 1_000_000;

/// Longest wait for a slot.
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// How many may be in flight, and who may wait.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::concurrency::ConcurrencyConfig;
///
/// let config = ConcurrencyConfig::new(64)
///     .with_queue(16)
///     .with_queue_timeout(Duration::from_millis(100))
///     .with_adaptive();
/// assert!(config.validate().is_ok());
/// assert_eq!(ConcurrencyConfig::new(0).validate().unwrap_err().option(), "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyConfig {
    limit: u32,
    queue: u32,
    queue_timeout: Duration,
    adaptive: bool,
    floor: u32,
}

impl ConcurrencyConfig {
    /// So many in flight at most, from 1 to 1,000,000, and no queue.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            limit,
            queue: 0,
            queue_timeout: Duration::from_millis(100),
            adaptive: false,
            floor: 1,
        }
    }

    /// Lets so many wait for a slot, up to 1,000,000. Default: none. Keep it short: who waits long has often gone by the
    /// time it is served.
    #[must_use]
    pub const fn with_queue(mut self, places: u32) -> Self {
        self.queue = places;
        self
    }

    /// How long one may wait, up to 1 h. Default: 100 ms.
    #[must_use]
    pub const fn with_queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// Lets the limit follow the measured latency: from [`floor`](Self::with_floor) up to the number of slots. Default: the
    /// limit is fixed. Needs a limit of at least 2.
    #[must_use]
    pub const fn with_adaptive(mut self) -> Self {
        self.adaptive = true;
        self
    }

    /// The lowest that an adaptive limit falls to. Default: 1.
    #[must_use]
    pub const fn with_floor(mut self, floor: u32) -> Self {
        self.floor = floor;
        self
    }

    /// How many may be in flight at most.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How many may wait.
    #[must_use]
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// How long each may wait.
    #[must_use]
    pub const fn queue_timeout(&self) -> Duration {
        self.queue_timeout
    }

    /// Whether the limit follows the latency.
    #[must_use]
    pub const fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// The lowest that an adaptive limit falls to.
    #[must_use]
    pub const fn floor(&self) -> u32 {
        self.floor
    }

    /// Checks what the types leave open.
    ///
    /// # Errors
    ///
    /// If an option makes no sense; the error names it.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(
            (1..=PLACES_MAX).contains(&self.limit),
            "limit",
            "must be from 1 to 1,000,000",
        )?;
        require(self.queue <= PLACES_MAX, "queue", "must be at most 1,000,000")?;
        require(
            !self.queue_timeout.is_zero() && self.queue_timeout <= TIMEOUT_MAX,
            "queue_timeout",
            "must be above zero and at most 1 h",
        )?;
        require(
            !self.adaptive || self.limit > 1,
            "adaptive",
            "has nothing to adapt below a limit of 1",
        )?;
        require(
            (1..=self.limit).contains(&self.floor),
            "floor",
            "must be from 1 to the limit",
        )
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

fn require(holds: bool, option: &'static str, problem: &'static str) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError { option, problem })
    }
}
