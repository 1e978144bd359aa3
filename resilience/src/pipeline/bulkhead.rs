//! A bound on the calls in flight.

use super::{
    classify::is_spent,
    context::Context,
    error::PipelineError,
    kinds::{Kinds, OrOverloaded},
    layer::{Layer, Next},
};
use crate::{
    concurrency::{ConcurrencyLimit, Overloaded, Priority, Shed},
    deadline::DeadlineExceeded,
};

/// Holds a place of a limit while what stands inside it runs. See [`Builder::bulkhead`](super::Builder::bulkhead).
#[derive(Clone, Debug)]
pub struct Bulkhead<F = fn(&Context) -> Priority> {
    limit: ConcurrencyLimit,
    priority: F,
}

impl Bulkhead {
    /// The layer by itself, for [`Builder::layer`](super::Builder::layer). The priority is the [`Priority`] in the call's
    /// context, or the default.
    #[must_use]
    pub fn new(limit: ConcurrencyLimit) -> Self {
        let priority = |context: &Context| context.get().copied().unwrap_or_default();
        Self { limit, priority }
    }
}

impl<F> Bulkhead<F> {
    /// The layer by itself, with a priority of another source.
    #[must_use]
    pub const fn by(limit: ConcurrencyLimit, priority: F) -> Self {
        Self { limit, priority }
    }
}

impl<T, E, K, F> Layer<T, E, K> for Bulkhead<F>
where
    T: Send,
    E: Send,
    K: Kinds,
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
        let _slot = self.limit.acquire(priority).await.map_err(refused::<E, K>)?;
        next.run().await.map_err(PipelineError::widen::<Self::Kinds>)
    }
}

/// A wait in the queue that the budget around it has ended is that budget's end, and no overload.
fn refused<E, K: Kinds>(overloaded: Overloaded) -> PipelineError<E, OrOverloaded<K>> {
    if overloaded.reason() == Shed::QueueTimeout && is_spent() {
        return PipelineError::Timeout(DeadlineExceeded);
    }
    PipelineError::Overloaded(overloaded)
}
