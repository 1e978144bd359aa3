use std::time::Duration;

/// `concurrency(64, queue = 16, queue_timeout = "100ms", adaptive = true)`: how many requests may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub(crate) limit: u32,
    pub(crate) queue: u32,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) adaptive: bool,
}

impl Concurrency {
    /// So many requests in flight, and no queue.
    ///
    /// # Panics
    ///
    /// When it is not from 1 to 1,000,000: at compile time, since policies are constants.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        assert!(1 <= limit && limit <= 1_000_000, "from 1 to 1,000,000 slots");
        Self {
            limit,
            queue: 0,
            queue_timeout: None,
            adaptive: false,
        }
    }

    /// Lets so many wait for a slot.
    ///
    /// # Panics
    ///
    /// When it is above 1,000,000.
    #[must_use]
    pub const fn with_queue(mut self, queue: u32) -> Self {
        assert!(queue <= 1_000_000, "at most 1,000,000 places");
        self.queue = queue;
        self
    }

    /// Bounds the wait for a slot.
    ///
    /// # Panics
    ///
    /// When it is zero, or longer than 10 minutes.
    #[must_use]
    pub const fn with_queue_timeout(mut self, timeout: Duration) -> Self {
        assert!(
            !timeout.is_zero() && timeout.as_millis() <= 600_000,
            "a wait of up to 10 minutes"
        );
        self.queue_timeout = Some(timeout);
        self
    }

    /// Lets the limit follow the latency, at most to the number of slots.
    #[must_use]
    pub const fn with_adaptive(mut self) -> Self {
        self.adaptive = true;
        self
    }
}
