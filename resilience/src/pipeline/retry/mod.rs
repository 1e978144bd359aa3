//! Asking again, within bounds.

mod backoff;
mod budget;

use std::{fmt, time::Duration};

use tokio::time::sleep;

use self::backoff::Delays;
pub use self::budget::RetryBudget;
use super::{
    classify::{Classify, Verdict, is_spent, judge},
    context::Context,
    error::PipelineError,
    kinds::Kinds,
    layer::{Layer, Next},
};
use crate::deadline;

/// How often a failed call is made again, and when.
///
/// Waits grow exponentially and are drawn with full jitter: the first from 0 to 50 ms, each later one from 0 to twice as
/// much, at most 2 s. A dependency's `Retry-After` is waited out before that wait begins. All retries of a pipeline share a
/// [`RetryBudget`], and so do clones of one `Retry`.
///
/// The last answer comes out at once, and no attempt is made, when
///
/// - the classifier says that asking again does not help,
/// - the retries are used up, or the budget has no token left,
/// - the wait would not end before the deadline around it ([`deadline::remaining`]), or `Retry-After` asks for more than
///   10 s.
///
/// An attempt that ran out of its own time is retried. What a layer further in refused (an open circuit, a full bulkhead, a rate limit) is
/// not, unless [`with_rejections`](Self::with_rejections) says so: asking at once again would only be refused again.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::pipeline::{Pipeline, Retry, RetryBudget};
///
/// let budget = RetryBudget::new(0.2, 10);
/// let retry = Retry::new(2)
///     .with_base_delay(Duration::from_millis(20))
///     .with_budget(budget.clone());
/// let pipeline = Pipeline::builder().deadline(Duration::from_secs(1)).retry(retry).build();
/// ```
#[derive(Clone)]
pub struct Retry {
    retries: u32,
    base: Duration,
    cap: Duration,
    longest_retry_after: Duration,
    rejections: bool,
    budget: Option<RetryBudget>,
}

impl Retry {
    /// Up to this many attempts after the first one.
    #[must_use]
    pub fn new(retries: u32) -> Self {
        Self {
            retries,
            base: Duration::from_millis(50),
            cap: Duration::from_secs(2),
            longest_retry_after: Duration::from_secs(10),
            rejections: false,
            budget: Some(RetryBudget::default()),
        }
    }

    /// The longest first wait; each later one is up to twice the one before. Default: 50 ms.
    #[must_use]
    pub const fn with_base_delay(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest wait of all, but for what a `Retry-After` asks. Default: 2 s.
    #[must_use]
    pub const fn with_max_delay(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// The longest `Retry-After` that is waited out; for a longer one the call gives up at once. Default: 10 s.
    #[must_use]
    pub const fn with_max_retry_after(mut self, longest: Duration) -> Self {
        self.longest_retry_after = longest;
        self
    }

    /// Retries also what a layer further in refused, after the wait that it asks for if it names one. Default: no.
    #[must_use]
    pub const fn with_rejections(mut self) -> Self {
        self.rejections = true;
        self
    }

    /// Takes the tokens from this budget, which may be shared with other pipelines. Default: one of its own.
    #[must_use]
    pub fn with_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// No bound over all calls. In an outage the load on the dependency is then multiplied by the attempts of a call: for
    /// jobs that nobody repeats, not for requests.
    #[must_use]
    pub fn without_budget(mut self) -> Self {
        self.budget = None;
        self
    }

    /// The budget that the retries are taken from, if there is one.
    #[must_use]
    pub const fn budget(&self) -> Option<&RetryBudget> {
        self.budget.as_ref()
    }

    /// How long to wait before this verdict's call is made again; `None` if it is not.
    fn wait(&self, verdict: Verdict, delays: &mut Option<Delays>) -> Option<Duration> {
        if !verdict.is_retryable() {
            return None;
        }
        let delays = delays.get_or_insert_with(|| Delays::new(self.retries, self.base, self.cap));
        let backoff = delays.next(fastrand::f64())?;
        let wait = match verdict.retry_after() {
            Some(asked) if asked > self.longest_retry_after => return None,
            // Not the longer of the two: all who were told the same would come back in the same moment.
            Some(asked) => asked.saturating_add(backoff),
            None => backoff,
        };
        // With nothing left after the wait there is no time for an attempt.
        if deadline::remaining().is_some_and(|left| wait >= left) {
            return None;
        }
        // Last, so that no token is spent on what is not made for another reason.
        self.budget
            .as_ref()
            .is_none_or(RetryBudget::try_withdraw)
            .then_some(wait)
    }

    fn verdict<T, E, K: Kinds>(
        &self,
        classifier: &impl Classify<T, E>,
        result: &Result<T, PipelineError<E, K>>,
    ) -> Verdict {
        match result {
            Err(error @ (PipelineError::Open(_) | PipelineError::Overloaded(_) | PipelineError::RateLimited(_)))
                if self.rejections =>
            {
                let verdict = Verdict::neutral().retryable();
                error
                    .retry_after()
                    .map_or(verdict, |wait| verdict.with_retry_after(wait))
            }
            _ => judge(classifier, result),
        }
    }
}

impl From<u32> for Retry {
    fn from(retries: u32) -> Self {
        Self::new(retries)
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("retries", &self.retries)
            .field("base_delay", &self.base)
            .field("max_delay", &self.cap)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// Runs what stands inside it until its answer is final. See [`Builder::retry`](super::Builder::retry).
#[derive(Clone, Debug)]
pub struct Retries<C> {
    retry: Retry,
    classifier: C,
}

impl<C> Retries<C> {
    /// The layer by itself, for [`Builder::layer`](super::Builder::layer).
    #[must_use]
    pub const fn new(retry: Retry, classifier: C) -> Self {
        Self { retry, classifier }
    }
}

impl<T: Send, E: Send, K: Kinds, C: Classify<T, E>> Layer<T, E, K> for Retries<C> {
    type Kinds = K;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, K>> {
        if let Some(budget) = &self.retry.budget {
            budget.deposit();
        }
        let mut delays = None;
        loop {
            let result = next.run().await;
            let verdict = self.retry.verdict(&self.classifier, &result);
            let Some(wait) = self.retry.wait(verdict, &mut delays) else {
                return result;
            };
            sleep(wait).await;
            // The timer rounds up, and the task may have been late.
            if is_spent() {
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_told_the_same_wait_do_not_come_back_together() {
        let retry = Retry::new(1).without_budget();
        let told = Verdict::failure().retryable().with_retry_after(Duration::from_secs(1));
        let waits: Vec<_> = (0..200).filter_map(|_| retry.wait(told, &mut None)).collect();
        let (shortest, longest) = (waits.iter().min(), waits.iter().max());
        let (Some(&shortest), Some(&longest)) = (shortest, longest) else {
            unreachable!("each is made again");
        };
        assert!(shortest >= Duration::from_secs(1) && longest <= Duration::from_millis(1_050));
        assert!(
            longest - shortest > Duration::from_millis(25),
            "{shortest:?} to {longest:?}"
        );
    }
}
