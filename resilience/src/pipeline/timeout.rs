//! A budget for what stands inside.

use std::time::Duration;

use super::{
    classify::is_spent,
    context::Context,
    error::PipelineError,
    kinds::{Kinds, OrTimeout},
    layer::{Layer, Next},
};
use crate::deadline::{self, DeadlineExceeded};

/// Ends what stands inside it when its time, or that of the budget around it, has run out. See
/// [`Builder::deadline`](super::Builder::deadline).
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Duration);

impl Deadline {
    /// The layer by itself, for [`Builder::layer`](super::Builder::layer).
    #[must_use]
    pub const fn new(budget: Duration) -> Self {
        Self(budget)
    }
}

impl<T: Send, E: Send, K: Kinds> Layer<T, E, K> for Deadline {
    type Kinds = OrTimeout<K>;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        // A call whose budget is spent is not even begun.
        if is_spent() {
            return Err(PipelineError::Timeout(DeadlineExceeded));
        }
        match deadline::scope(self.0, next.run()).await {
            Ok(result) => result.map_err(PipelineError::widen::<Self::Kinds>),
            Err(late) => Err(PipelineError::Timeout(late)),
        }
    }
}
