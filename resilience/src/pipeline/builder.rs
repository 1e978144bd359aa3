//! Writing a pipeline down.

use std::{future::Future, sync::Arc, time::Duration};

use super::{
    Pipeline,
    bulkhead::Bulkhead,
    circuit::Breaker,
    classify::{AnyError, ClassifyBy, Verdict},
    context::Context,
    error::PipelineError,
    fallback::{Fallback, Recover},
    layer::{Stack, Start},
    rate_limit::{Claim, RateLimit, RateLimitBy, RateLimiter},
    retry::{Retries, Retry},
    timeout::Deadline,
};
use crate::{
    breaker::CircuitBreaker,
    concurrency::{ConcurrencyLimit, Priority},
};

/// The layers of a [`Pipeline`], in the order in which they are written: the first is the outermost.
///
/// `L` is the layers so far, `C` what judges the answers.
#[derive(Clone, Debug)]
pub struct Builder<L = Start, C = AnyError> {
    layers: L,
    classifier: C,
}

impl Builder {
    pub(super) const fn new() -> Self {
        Self {
            layers: Start,
            classifier: AnyError,
        }
    }
}

/// What judges the answers comes first, since every layer after it goes by it.
impl<C> Builder<Start, C> {
    /// Judges answers by `classifier`: what breakers count, and what is retried. Default: [`AnyError`].
    #[must_use]
    pub fn classify<D>(self, classifier: D) -> Builder<Start, D> {
        Builder {
            layers: self.layers,
            classifier,
        }
    }

    /// [`classify`](Self::classify) with a function.
    ///
    /// ```
    /// use resilience::pipeline::{Pipeline, Verdict};
    ///
    /// let pipeline = Pipeline::builder()
    ///     .classify_by(|answer: Result<&u32, &u16>| match answer {
    ///         Ok(_) => Verdict::success(),
    ///         Err(400..500) => Verdict::neutral(),
    ///         Err(_) => Verdict::failure().retryable(),
    ///     })
    ///     .retry(2)
    ///     .build();
    /// ```
    #[must_use]
    pub fn classify_by<T, E, F>(self, classifier: F) -> Builder<Start, ClassifyBy<F>>
    where
        F: Fn(Result<&T, &E>) -> Verdict + Send + Sync,
    {
        self.classify(ClassifyBy(classifier))
    }
}

impl<L, C: Clone> Builder<L, C> {
    /// Gives what stands inside at most `budget`, or what is left of the budget around it if that is less.
    ///
    /// Outside of a [`retry`](Self::retry) it bounds the whole call, waits included; inside, each attempt. Code below sees
    /// it by [`deadline::remaining`](crate::deadline::remaining). A call whose budget is spent already is not begun.
    /// Rejects with [`DeadlineExceeded`](crate::deadline::DeadlineExceeded).
    #[must_use]
    pub fn deadline(self, budget: Duration) -> Builder<Stack<L, Deadline>, C> {
        self.layer(Deadline::new(budget))
    }

    /// Makes a failed call again: a [`Retry`], or a number of retries with its defaults.
    ///
    /// Rejects with nothing of its own: the last answer comes out.
    #[must_use]
    pub fn retry(self, retry: impl Into<Retry>) -> Builder<Stack<L, Retries<C>>, C> {
        let classifier = self.classifier.clone();
        self.layer(Retries::new(retry.into(), classifier))
    }

    /// Refuses while the circuit of `breaker` is open, and counts what comes out of the layers inside.
    ///
    /// An attempt that runs out of a deadline inside it is a failure; without one inside, it never learns that the
    /// dependency hangs. Neutral are a caller that goes away, a budget around
    /// it that is spent, and what a layer inside it refused. Inside of a [`retry`](Self::retry) it counts each attempt,
    /// outside whole calls. Rejects with [`CircuitOpen`](crate::breaker::CircuitOpen).
    #[must_use]
    pub fn breaker(self, breaker: CircuitBreaker) -> Builder<Stack<L, Breaker<C>>, C> {
        let classifier = self.classifier.clone();
        self.layer(Breaker::new(breaker, classifier))
    }

    /// Bounds the calls in flight inside it. Priority is the [`Priority`] in the call's [`Context`], or the default.
    ///
    /// An adaptive limit learns from the answers: the time of a success, and that an attempt ran out of time. A call for
    /// which there is no place waits in the limit's queue, if it has one, and not beyond the budget around it.
    /// Rejects with [`Overloaded`](crate::concurrency::Overloaded), or with
    /// [`DeadlineExceeded`](crate::deadline::DeadlineExceeded) when that budget ended the wait.
    #[must_use]
    pub fn bulkhead(self, limit: ConcurrencyLimit) -> Builder<Stack<L, Bulkhead<C>>, C> {
        let classifier = self.classifier.clone();
        self.layer(Bulkhead::new(limit, classifier))
    }

    /// [`bulkhead`](Self::bulkhead) with a priority that is taken from anything else in the [`Context`].
    ///
    /// ```
    /// use resilience::{
    ///     concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority},
    ///     pipeline::{Context, Pipeline},
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = ConcurrencyLimit::new("payments", ConcurrencyConfig::new(16).with_queue(32))?;
    /// let pipeline = Pipeline::builder()
    ///     .bulkhead_by(limit, |context| match context.request() {
    ///         Some(request) if request.uri.path().starts_with("/checkout") => Priority::Critical,
    ///         _ => Priority::Default,
    ///     })
    ///     .build();
    ///
    /// let request = poem::Request::builder().uri_str("/checkout/7").finish();
    /// let context = Context::of_request(&request);
    /// let paid = pipeline.call_with(&context, || async { Ok::<_, std::io::Error>(()) }).await;
    /// assert!(paid.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn bulkhead_by<F>(self, limit: ConcurrencyLimit, priority: F) -> Builder<Stack<L, Bulkhead<C, F>>, C>
    where
        F: Fn(&Context) -> Priority + Send + Sync,
    {
        let classifier = self.classifier.clone();
        self.layer(Bulkhead::by(limit, classifier, priority))
    }

    /// Refuses calls over the limit, all on one count. Never waits.
    ///
    /// Rejects with [`RateLimited`](super::RateLimited).
    #[must_use]
    pub fn rate_limit(self, limiter: RateLimiter) -> Builder<Stack<L, RateLimit>, C> {
        self.layer(RateLimit(limiter))
    }

    /// Refuses calls over the limit, by a key and a cost that are taken from the call's [`Context`].
    ///
    /// Rejects with [`RateLimited`](super::RateLimited), or with [`PermitLimitExceeded`](super::PermitLimitExceeded) when
    /// the cost is above the limit.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use resilience::{Limit, pipeline::{Claim, Context, Pipeline, RateLimiter}};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::local("search", Limit::new(100, Duration::from_secs(1)))?;
    /// let pipeline = Pipeline::builder()
    ///     .rate_limit_by(limiter, |context| match context.get::<Tenant>() {
    ///         Some(tenant) => Claim::new(&*tenant.0).with_cost(2),
    ///         None => Claim::shared(),
    ///     })
    ///     .build();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rate_limit_by<F, K>(self, limiter: RateLimiter, claim: F) -> Builder<Stack<L, RateLimitBy<F>>, C>
    where
        F: Fn(&Context) -> K + Send + Sync,
        K: Into<Claim>,
    {
        self.layer(RateLimitBy { limiter, claim })
    }

    /// Answers in place of every error from inside, the call's own and rejections. No rejection comes out of it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use resilience::pipeline::Pipeline;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let pipeline = Pipeline::builder()
    ///     .fallback(|error| async move {
    ///         println!("{:?}: the cached quote serves", error.code());
    ///         Ok(99)
    ///     })
    ///     .deadline(Duration::from_millis(500))
    ///     .build();
    /// let quote = pipeline.call(|| std::future::pending::<Result<u32, std::io::Error>>()).await;
    /// assert_eq!(quote.unwrap(), 99);
    /// # }
    /// ```
    #[must_use]
    pub fn fallback<T, E, F, Fut>(self, answer: F) -> Builder<Stack<L, Fallback<F>>, C>
    where
        F: Fn(PipelineError<E>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, E>> + Send,
    {
        self.layer(Fallback(answer))
    }

    /// Answers in place of some errors from inside, and passes others on: every kind can come out of it.
    #[must_use]
    pub fn recover<T, E, F, Fut>(self, answer: F) -> Builder<Stack<L, Recover<F>>, C>
    where
        F: Fn(PipelineError<E>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, PipelineError<E>>> + Send,
    {
        self.layer(Recover(answer))
    }

    /// Adds a layer of your own: a [`Layer`](super::Layer).
    #[must_use]
    pub fn layer<N>(self, layer: N) -> Builder<Stack<L, N>, C> {
        Builder {
            layers: Stack {
                outer: self.layers,
                inner: layer,
            },
            classifier: self.classifier,
        }
    }

    /// The pipeline.
    #[must_use]
    pub fn build(self) -> Pipeline<L> {
        Pipeline {
            layers: Arc::new(self.layers),
        }
    }
}
