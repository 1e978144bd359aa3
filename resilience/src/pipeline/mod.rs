//! Outbound calls: the strategies around a call to a dependency, in the order in which they are written.
//!
//! ```
//! use std::time::Duration;
//!
//! use resilience::{breaker::CircuitBreaker, pipeline::{Pipeline, PipelineError}};
//!
//! async fn fetch_quote() -> Result<u32, std::io::Error> {
//!     Ok(42)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Build it once, and keep it: the breaker's counts and the retry budget live in it. Clones are handles.
//! let payments = Pipeline::builder()
//!     .deadline(Duration::from_secs(2))
//!     .retry(3)
//!     .breaker(CircuitBreaker::new("payments", Default::default())?)
//!     .deadline(Duration::from_millis(500))
//!     .build();
//!
//! match payments.call(fetch_quote).await {
//!     Ok(quote) => assert_eq!(quote, 42),
//!     Err(PipelineError::Inner(error)) => println!("payments: {error}"),
//!     Err(PipelineError::Timeout(late)) => println!("{late}"),
//!     Err(PipelineError::Open(open)) => println!("again in {:?}", open.retry_after()),
//!     // There is no limit in this pipeline, and the compiler knows it.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! The first layer is the outermost. What one means depends on where it stands:
//!
//! | layer | outside of `retry` | inside of `retry` |
//! |---|---|---|
//! | `deadline` | the whole call, waits included | each attempt |
//! | `breaker` | counts calls | counts attempts, and stops them in the midst of a call |
//! | `bulkhead` | holds its place through the waits | holds a place for each attempt |
//! | `rate_limit` | counts calls | counts attempts: what the dependency sees |
//! | `fallback` | answers for the call | answers for an attempt, which is then not retried |
//!
//! An order that serves most calls: `fallback`, `deadline`, `rate_limit`, `retry`, `breaker`, `bulkhead`, `deadline`.
//!
//! # Cost
//!
//! Layers are a type: no allocation, no dynamic call, no task. A layer that needs no clock reads none.

mod builder;
mod bulkhead;
mod circuit;
mod classify;
mod context;
mod error;
mod fallback;
#[cfg(feature = "reqwest")]
pub mod http;
mod kinds;
mod layer;
mod rate_limit;
mod retry;
#[cfg(test)]
mod tests;
mod timeout;

use std::{fmt, future::Future, sync::Arc};

use self::layer::Call;
pub use self::{
    builder::Builder,
    bulkhead::Bulkhead,
    circuit::Breaker,
    classify::{AnyError, Classify, ClassifyBy, Verdict},
    context::Context,
    error::PipelineError,
    fallback::{Fallback, Recover},
    kinds::{
        AnyRejection, Kinds, OrCostLimited, OrOpen, OrOverloaded, OrRateLimited, OrTimeout, Rejection, Rejections,
    },
    layer::{Layer, Next, Stack, Start},
    rate_limit::{Claim, LimitError, PermitLimitExceeded, RateLimit, RateLimitBy, RateLimited, RateLimiter},
    retry::{Retries, Retry, RetryBudget},
    timeout::Deadline,
};

/// Strategies around a call, in a fixed order. Clones are handles on the same pipeline.
///
/// See the [module](self) for an example, and [`Builder`] for the strategies.
pub struct Pipeline<L> {
    layers: Arc<L>,
}

impl Pipeline<Start> {
    /// Layers to begin with: none.
    #[must_use]
    pub const fn builder() -> Builder {
        Builder::new()
    }
}

impl<L> Pipeline<L> {
    /// Makes a call through the layers. `attempt` makes the future of one attempt: once, as often as a retry asks, or not
    /// at all.
    ///
    /// # Errors
    ///
    /// The last attempt's own error, or the rejection of a layer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call drops the attempt under way and gives back what the layers hold. Breakers count it as neutral.
    pub async fn call<T, E, F, Fut>(&self, attempt: F) -> Result<T, PipelineError<E, L::Kinds>>
    where
        L: Layer<T, E, Rejections>,
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send,
    {
        self.call_with(&Context::new(), attempt).await
    }

    /// [`call`](Self::call) for layers that go by a [`Context`].
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// As [`call`](Self::call).
    pub async fn call_with<T, E, F, Fut>(&self, context: &Context, attempt: F) -> Result<T, PipelineError<E, L::Kinds>>
    where
        L: Layer<T, E, Rejections>,
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send,
    {
        let mut call = Call(attempt);
        self.layers.around(context, &mut call).await
    }
}

impl<L> Clone for Pipeline<L> {
    fn clone(&self) -> Self {
        Self {
            layers: Arc::clone(&self.layers),
        }
    }
}

impl<L: fmt::Debug> fmt::Debug for Pipeline<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pipeline").field(&self.layers).finish()
    }
}
