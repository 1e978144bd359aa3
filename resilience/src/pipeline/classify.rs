//! What an answer says about the dependency, and whether asking again may help.

use std::time::Duration;

use super::{error::PipelineError, kinds::Kinds};
use crate::{breaker::Outcome, deadline};

/// Judges the answers of a pipeline's calls: breakers count by it, retries go by it.
///
/// It sees what the call itself returned, an attempt at a time. The pipeline's own rejections are judged by fixed rules: an
/// attempt out of time as [`timed_out`](Self::timed_out) says; a budget spent outside, and a refusal by a layer further in,
/// say nothing about the dependency.
///
/// ```
/// use resilience::pipeline::{Classify, Verdict};
///
/// enum PaymentError {
///     Declined,
///     Down,
/// }
///
/// struct Payments;
///
/// impl<T> Classify<T, PaymentError> for Payments {
///     fn classify(&self, answer: Result<&T, &PaymentError>) -> Verdict {
///         match answer {
///             Ok(_) => Verdict::success(),
///             // It works, and would decline again.
///             Err(PaymentError::Declined) => Verdict::neutral(),
///             Err(PaymentError::Down) => Verdict::failure().retryable(),
///         }
///     }
/// }
/// ```
pub trait Classify<T, E>: Send + Sync {
    /// The verdict on one answer. Called once per attempt and layer that asks; it should be cheap.
    fn classify(&self, answer: Result<&T, &E>) -> Verdict;

    /// The verdict on an attempt that ran out of its own time. Default: a failure that may be retried, which it may not be
    /// where nobody knows what became of it.
    fn timed_out(&self) -> Verdict {
        Verdict::failure().retryable()
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    outcome: Outcome,
    retry: bool,
    retry_after: Option<Duration>,
}

impl Verdict {
    /// The dependency answered well. Never retried.
    #[must_use]
    pub const fn success() -> Self {
        Self::of(Outcome::Success)
    }

    /// The dependency failed. Not retried unless it is [`retryable`](Self::retryable).
    #[must_use]
    pub const fn failure() -> Self {
        Self::of(Outcome::Failure)
    }

    /// Says nothing about the dependency, such as an error that the caller made. Not retried unless it is
    /// [`retryable`](Self::retryable).
    #[must_use]
    pub const fn neutral() -> Self {
        Self::of(Outcome::Neutral)
    }

    /// Asking again may help, and does no harm. A [`success`](Self::success) stays final.
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retry = !matches!(self.outcome, Outcome::Success);
        self
    }

    /// The dependency asks to be left alone for so long: a retry waits at least that.
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What breakers count.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether asking again may help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        self.retry
    }

    /// How long the dependency asks to be left alone.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    const fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            retry: false,
            retry_after: None,
        }
    }
}

/// The default: `Ok` is a success, `Err` a failure that may be retried.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyError;

impl<T, E> Classify<T, E> for AnyError {
    fn classify(&self, answer: Result<&T, &E>) -> Verdict {
        match answer {
            Ok(_) => Verdict::success(),
            Err(_) => Verdict::failure().retryable(),
        }
    }
}

/// A classifier that is a function; see [`Builder::classify_by`](super::Builder::classify_by).
#[derive(Clone, Copy, Debug)]
pub struct ClassifyBy<F>(pub(super) F);

impl<T, E, F> Classify<T, E> for ClassifyBy<F>
where
    F: Fn(Result<&T, &E>) -> Verdict + Send + Sync,
{
    fn classify(&self, answer: Result<&T, &E>) -> Verdict {
        (self.0)(answer)
    }
}

/// The verdict on what came out of a layer, asked by the layer outside it.
pub(super) fn judge<T, E, K: Kinds>(
    classifier: &impl Classify<T, E>,
    result: &Result<T, PipelineError<E, K>>,
) -> Verdict {
    match result {
        Ok(value) => classifier.classify(Ok(value)),
        Err(PipelineError::Inner(error)) => classifier.classify(Err(error)),
        // The budget around the asking layer has run out too, and so did not leave the dependency its time.
        Err(PipelineError::Timeout(_)) if is_spent() => Verdict::neutral(),
        Err(PipelineError::Timeout(_)) => classifier.timed_out(),
        Err(
            PipelineError::Open(_)
            | PipelineError::Overloaded(_)
            | PipelineError::RateLimited(_)
            | PipelineError::PermitLimitExceeded(_),
        ) => Verdict::neutral(),
    }
}

/// Whether the enclosing budget has run out.
pub(super) fn is_spent() -> bool {
    deadline::remaining().is_some_and(|left| left.is_zero())
}
