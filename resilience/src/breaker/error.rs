use std::time::Duration;

/// The circuit is open, or half-open with all its probes under way: the call was not let in.
///
/// Small and `Copy`, since a service in an outage makes one per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("circuit open")]
pub struct CircuitOpen {
    retry_after: Option<Duration>,
}

impl CircuitOpen {
    pub(super) const fn new(retry_after: Option<Duration>) -> Self {
        Self { retry_after }
    }

    /// How long until the next call may be let in, if that is known.
    ///
    /// `None` while probes are under way, which may end at any moment, and from a
    /// [supervised](super::CircuitBreaker::supervised) breaker, which refuses without looking at the clock.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// Why [`CircuitBreaker::call`](super::CircuitBreaker::call) gave no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError<E> {
    /// The breaker refused, and the future was never polled.
    // Not transparent: whoever follows the causes is to find the refusal itself.
    #[error("circuit open")]
    Open(#[from] CircuitOpen),
    /// The future ran and failed.
    #[error("the call failed")]
    Inner(#[source] E),
}

impl<E> CallError<E> {
    /// The future's own error; `None` if the breaker refused.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Open(_) => None,
            Self::Inner(error) => Some(error),
        }
    }
}
