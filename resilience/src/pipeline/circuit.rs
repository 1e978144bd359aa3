//! A circuit breaker around what stands inside.

use super::{
    classify::{Classify, judge},
    context::Context,
    error::PipelineError,
    kinds::{Kinds, OrOpen},
    layer::{Layer, Next},
};
use crate::breaker::CircuitBreaker;

/// Refuses while the circuit is open, and counts what comes out of the layers inside. See
/// [`Builder::breaker`](super::Builder::breaker).
#[derive(Clone, Debug)]
pub struct Breaker<C> {
    breaker: CircuitBreaker,
    classifier: C,
}

impl<C> Breaker<C> {
    /// The layer by itself, for [`Builder::layer`](super::Builder::layer).
    #[must_use]
    pub const fn new(breaker: CircuitBreaker, classifier: C) -> Self {
        Self { breaker, classifier }
    }
}

impl<T: Send, E: Send, K: Kinds, C: Classify<T, E>> Layer<T, E, K> for Breaker<C> {
    type Kinds = OrOpen<K>;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        // Dropped without a record, by a caller that has gone or by a panic, the permit counts as neutral.
        let permit = self.breaker.try_acquire().map_err(PipelineError::Open)?;
        let result = next.run().await;
        permit.record(judge(&self.classifier, &result).outcome());
        result.map_err(PipelineError::widen::<Self::Kinds>)
    }
}
