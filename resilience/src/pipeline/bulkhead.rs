//! A bound on the calls in flight.

use super::{
    classify::{Classify, is_spent, judge},
    context::Context,
    error::PipelineError,
    kinds::{Kinds, OrOverloaded},
    layer::{Layer, Next},
};
use crate::{
    breaker::Outcome,
    concurrency::{ConcurrencyLimit, Overloaded, Priority, Shed},
    deadline::DeadlineExceeded,
};

/// Holds a place of a limit while what stands inside it runs. See [`Builder::bulkhead`](super::Builder::bulkhead).
#[derive(Clone, Debug)]
pub struct Bulkhead<C, F = fn(&Context) -> Priority> {
    limit: ConcurrencyLimit,
    classifier: C,
    priority: F,
}

impl<C> Bulkhead<C> {
    /// The layer by itself, for [`Builder::layer`](super::Builder::layer). The priority is the [`Priority`] in the call's
    /// context, or the default.
    #[must_use]
    pub fn new(limit: ConcurrencyLimit, classifier: C) -> Self {
        Self::by(limit, classifier, |context| context.get().copied().unwrap_or_default())
    }
}

impl<C, F> Bulkhead<C, F> {
    /// The layer by itself, with a priority of another source.
    #[must_use]
    pub const fn by(limit: ConcurrencyLimit, classifier: C, priority: F) -> Self {
        Self {
            limit,
            classifier,
            priority,
        }
    }
}

impl<T, E, K, C, F> Layer<T, E, K> for Bulkhead<C, F>
where
    T: Send,
    E: Send,
    K: Kinds,
    C: Classify<T, E>,
    F: Fn(&Context) -> Priority + Send + Sync,
{
    type Kinds = OrOverloaded<K>;

    async fn around(
        &self,
        context: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> Result<T, PipelineError<E, Self::Kinds>> {
        let priority = (self.priority)(context);
        // Dropped on every way out, by a panic and by a caller that has gone too.
        let mut slot = self.limit.acquire(priority).await.map_err(refused::<E, K>)?;
        let result = next.run().await;
        match (service(&self.classifier, &result), &result) {
            // Given up: without a word, the slot says how long the call had been under way.
            (Outcome::Neutral, Err(PipelineError::Timeout(_))) => {}
            (outcome, _) => slot.served(outcome),
        }
        result.map_err(PipelineError::widen::<Self::Kinds>)
    }
}

/// What an adaptive limit learns. Only time says how loaded the dependency is: an error may come fast, and is no sample.
fn service<T, E, K: Kinds>(classifier: &impl Classify<T, E>, result: &Result<T, PipelineError<E, K>>) -> Outcome {
    let timed_out = matches!(result, Err(PipelineError::Timeout(_)));
    match judge(classifier, result).outcome() {
        Outcome::Failure if !timed_out => Outcome::Neutral,
        outcome => outcome,
    }
}

/// A wait in the queue that the budget around it has ended is that budget's end, and no overload.
fn refused<E, K: Kinds>(overloaded: Overloaded) -> PipelineError<E, OrOverloaded<K>> {
    if overloaded.reason() == Shed::QueueTimeout && is_spent() {
        return PipelineError::Timeout(DeadlineExceeded);
    }
    PipelineError::Overloaded(overloaded)
}
