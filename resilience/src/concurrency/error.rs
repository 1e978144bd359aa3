use std::{sync::Arc, time::Duration};

/// What a refused client is told to wait. How long an overload lasts is not known, and a second spreads the retries.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The request was shed: there was no place for it, or none in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is overloaded: {reason}")]
pub struct Overloaded {
    name: Arc<str>,
    reason: Shed,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Shed {
    /// All places and the queue were taken, or the caller would not wait. Answered at once.
    #[error("no place is free")]
    QueueFull,
    /// No place was free before the queue timeout, or before the caller's own deadline.
    #[error("no place was free in time")]
    QueueTimeout,
    /// It waited in a full queue, and gave its place there to a request of higher priority.
    #[error("a request of higher priority took the place in the queue")]
    Displaced,
}

/// How many requests were shed so far, by reason. They only grow, and start over at zero beyond `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedCounts {
    /// Those shed as [`Shed::QueueFull`].
    pub queue_full: u64,
    /// Those shed as [`Shed::QueueTimeout`].
    pub queue_timeout: u64,
    /// Those shed as [`Shed::Displaced`].
    pub displaced: u64,
}

impl Overloaded {
    pub(super) fn new(name: Arc<str>, reason: Shed) -> Self {
        Self { name, reason }
    }

    /// The name of the limit that had no place.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why this request was shed.
    #[must_use]
    pub const fn reason(&self) -> Shed {
        self.reason
    }

    /// How long the client had better wait: one second. A hint; no place is kept.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        RETRY_AFTER
    }
}

impl Shed {
    /// The reason in one word, as metrics name it: `queue_full`, `queue_timeout` or `displaced`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::Displaced => "displaced",
        }
    }
}

impl ShedCounts {
    /// All of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full
            .wrapping_add(self.queue_timeout)
            .wrapping_add(self.displaced)
    }

    pub(super) fn count(&mut self, reason: Shed) {
        let count = match reason {
            Shed::QueueFull => &mut self.queue_full,
            Shed::QueueTimeout => &mut self.queue_timeout,
            Shed::Displaced => &mut self.displaced,
        };
        *count = count.wrapping_add(1);
    }
}
