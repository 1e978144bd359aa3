//! The time of an attempt, and what the breaker makes of its end.
//!
//! In a pipeline a deadline outside of the breaker drops the attempt, which says nothing about the dependency: it may have
//! had no time. Here `timeout` is often the only time there is, and a dependency that hangs through it has failed.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    breaker::{CircuitBreaker, Outcome},
    deadline::{self, DeadlineExceeded},
    pipeline::{Classify, Context, Kinds, Layer, Next, OrOpen, OrTimeout, PipelineError},
};

/// Whether the attempt that has just ended had its time and did not answer in it.
#[derive(Debug, Default)]
pub(super) struct Late(AtomicBool);

/// The innermost layer: ends an attempt with its own time or with the call's, whichever is first.
pub(super) struct Timed<'a> {
    budget: Duration,
    /// With less than this no dependency can be blamed.
    least: Duration,
    /// The end of the budget around the call.
    request: Option<Instant>,
    late: &'a Late,
}

impl<'a> Timed<'a> {
    /// `None` for attempts without a time: nothing ends them but their caller.
    pub(super) fn new(attempt: Option<Duration>, call: Option<Duration>, late: &'a Late) -> Option<Self> {
        let (budget, least) = match (attempt, call) {
            (Some(attempt), _) => (attempt, attempt),
            // The queue and earlier attempts may have taken some of it.
            (None, Some(call)) => (call, call / 2),
            (None, None) => return None,
        };
        Some(Self {
            budget,
            least,
            request: deadline::current(),
            late,
        })
    }
}

impl<T: Send, E: Send, K: Kinds> Layer<T, E, K> for Timed<'_> {
    type Kinds = OrTimeout<K>;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        let started = Instant::now();
        if deadline::current().is_some_and(|end| end <= started) {
            return Err(PipelineError::Timeout(DeadlineExceeded));
        }
        match deadline::scope(self.budget, next.run()).await {
            Ok(result) => result.map_err(PipelineError::widen::<Self::Kinds>),
            Err(late) => {
                let now = Instant::now();
                let request_is_over = self.request.is_some_and(|end| end <= now);
                if now - started >= self.least && !request_is_over {
                    self.late.0.store(true, Ordering::Relaxed);
                }
                Err(PipelineError::Timeout(late))
            }
        }
    }
}

/// The breaker: counts answers as the classifier says, and attempts that were late as failures.
pub(super) struct Counted<'a, C> {
    pub(super) breaker: CircuitBreaker,
    pub(super) classifier: C,
    pub(super) late: &'a Late,
}

impl<T: Send, E: Send, K: Kinds, C: Classify<T, E>> Layer<T, E, K> for Counted<'_, C> {
    type Kinds = OrOpen<K>;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        // Dropped without a record, by a caller that has gone or by a panic, the permit counts as neutral.
        let permit = self.breaker.try_acquire().map_err(PipelineError::Open)?;
        let result = next.run().await;
        let late = self.late.0.swap(false, Ordering::Relaxed);
        permit.record(match &result {
            Ok(value) => self.classifier.classify(Ok(value)).outcome(),
            Err(PipelineError::Inner(error)) => self.classifier.classify(Err(error)).outcome(),
            Err(PipelineError::Timeout(_)) if late => Outcome::Failure,
            // Time that ran out before, or a refusal of the bulkhead.
            Err(_) => Outcome::Neutral,
        });
        result.map_err(PipelineError::widen::<Self::Kinds>)
    }
}
