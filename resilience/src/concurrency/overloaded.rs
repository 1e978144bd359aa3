use std::time::Duration;

/// There was no slot for the request, nor will there be one in time. As a poem error it answers 503 `overloaded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: {reason}")]
pub struct Overloaded {
    reason: Shed,
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Shed {
    /// All slots were taken, and so were all places in the queue.
    #[error("the queue is full")]
    QueueFull,
    /// It waited for as long as it may.
    #[error("no slot was free in time")]
    QueueTimeout,
    /// It waited, and one of a higher priority took its place.
    #[error("a request of a higher priority took its place")]
    Displaced,
}

impl Shed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::QueueTimeout, Self::Displaced];

    /// The word that metrics use for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::Displaced => "displaced",
        }
    }
}

impl Overloaded {
    pub(super) const fn new(reason: Shed) -> Self {
        Self { reason }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> Shed {
        self.reason
    }

    /// When to try again: in 1 s. An overload is over when its callers come later.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        Duration::from_secs(1)
    }
}
