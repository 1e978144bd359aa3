//! A pipeline of the user's own around a whole app.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use crate::{
    disconnect::{Hangup, unless_gone, unless_gone_within},
    install::ResilienceEndpoint,
    pipeline::{Context, Deadline, Fallback, Layer, Pipeline, Rejections, Stack, Start},
    runtime::Resilience,
};

impl Resilience {
    /// Puts a pipeline of your own around a whole app, or a tree of its routes, in place of the guards of
    /// [`inbound`](Self::inbound): a bulkhead that goes by priorities, a breaker, an adaptive limit, in the order that you
    /// choose.
    ///
    /// The request's parts are at hand for partition keys and priorities: [`Context::request`]. Rejections become answers
    /// with the right status. Classifiers see an answer of any status as `Ok`, an error that the app returns as `Err` if it
    /// is a server's (5xx), and as `Ok` with its status if it is a client's, such as the 404 of a path that nobody serves:
    /// judge answers with [`classify_by`](crate::pipeline::Builder::classify_by). A bulkhead's place is free when the endpoint has answered;
    /// that of `concurrency` in [`inbound`](Self::inbound) is held until the answer has been sent.
    ///
    /// A caller's deadline ([`Builder::deadline_header`](crate::Builder::deadline_header)) bounds all of it.
    ///
    /// A request is handled once, since its body can be read once: the compiler refuses a pipeline with a `retry`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use poem::{EndpointExt, Route, get, handler};
    /// use resilience::{
    ///     Resilience,
    ///     concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority},
    ///     pipeline::{Context, Pipeline},
    /// };
    ///
    /// #[handler]
    /// fn hello() -> &'static str {
    ///     "Hello."
    /// }
    ///
    /// fn priority(context: &Context) -> Priority {
    ///     let path = context.request().map(|request| request.uri.path());
    ///     if path == Some("/healthz") { Priority::Critical } else { Priority::Default }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let resilience = Resilience::builder().memory().build()?;
    /// let limit = ConcurrencyLimit::new("app", ConcurrencyConfig::new(256).with_queue(64))?;
    /// let pipeline = Pipeline::builder()
    ///     .bulkhead_by(limit, priority)
    ///     .deadline(Duration::from_secs(10))
    ///     .build();
    /// let app = Route::new().at("/", get(hello)).with(resilience.inbound_pipeline(pipeline));
    /// # let response = app.get_response(poem::Request::default()).await;
    /// # assert!(response.status().is_success());
    /// # Ok(())
    /// # }
    /// # use poem::Endpoint;
    /// ```
    pub fn inbound_pipeline<L>(&self, pipeline: Pipeline<L>) -> InboundPipeline<L>
    where
        L: Layer<Response, poem::Error, Rejections> + Once,
    {
        InboundPipeline {
            resilience: self.clone(),
            pipeline,
        }
    }
}

/// Layers that run what stands inside them at most once.
#[diagnostic::on_unimplemented(
    message = "a request is handled once, and `{Self}` may run its handler again",
    label = "this pipeline repeats, or has a layer of your own that does not say",
    note = "a request's body can be read once: leave `retry` out around an app, and implement `Once` for layers of your own that run \
            their `next` at most once"
)]
pub trait Once {}

impl Once for Start {}
impl Once for Deadline {}
impl<C> Once for crate::pipeline::Breaker<C> {}
impl<F, C> Once for crate::pipeline::Bulkhead<F, C> {}
impl Once for crate::pipeline::RateLimit {}
impl<F> Once for crate::pipeline::RateLimitBy<F> {}
impl<F> Once for Fallback<F> {}
impl<F> Once for crate::pipeline::Recover<F> {}
impl<L: Once> Once for Option<L> {}
impl<Outer: Once, Inner: Once> Once for Stack<Outer, Inner> {}

/// A pipeline around a whole app: a poem middleware.
pub struct InboundPipeline<L> {
    resilience: Resilience,
    pipeline: Pipeline<L>,
}

impl<L> Clone for InboundPipeline<L> {
    fn clone(&self) -> Self {
        Self {
            resilience: self.resilience.clone(),
            pipeline: self.pipeline.clone(),
        }
    }
}

impl<L> fmt::Debug for InboundPipeline<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundPipeline").finish_non_exhaustive()
    }
}

impl<L, E> Middleware<E> for InboundPipeline<L>
where
    L: Layer<Response, poem::Error, Rejections> + 'static,
    E: Endpoint,
{
    type Output = ResilienceEndpoint<PipelineEndpoint<L, E>>;

    fn transform(&self, inner: E) -> Self::Output {
        let piped = PipelineEndpoint {
            inner,
            pipeline: self.pipeline.clone(),
            resilience: self.resilience.clone(),
        };
        self.resilience.transform(piped)
    }
}

/// An app with a pipeline around it, as `.with(resilience.inbound_pipeline(…))` makes it.
pub struct PipelineEndpoint<L, E> {
    inner: E,
    pipeline: Pipeline<L>,
    resilience: Resilience,
}

impl<L, E> fmt::Debug for PipelineEndpoint<L, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineEndpoint").finish_non_exhaustive()
    }
}

impl<L, E> Endpoint for PipelineEndpoint<L, E>
where
    L: Layer<Response, poem::Error, Rejections> + 'static,
    E: Endpoint,
{
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        let hangup = Hangup::of(&request);
        let context = Context::of_request(&request);
        let caller = self.resilience.runtime.settings.deadline_header.as_ref();
        let left = caller.and_then(|header| header.budget(&request));
        let mut request = Some(request);
        let clients_fault = Mutex::new(None);
        let handle = || {
            let request = request.take();
            async {
                match request {
                    Some(request) => match self.inner.call(request).await {
                        Ok(output) => Ok(output.into_response()),
                        Err(error) if error.status().is_server_error() => Err(error),
                        // No failure of the app, though it stays an error for whoever catches it further out.
                        Err(error) => {
                            let status = error.status();
                            *clients_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            Ok(status.into_response())
                        }
                    },
                    // Layers that come here again are not `Once`, and were refused where the middleware was made.
                    None => Err(poem::error::InternalServerError(RequestUsed)),
                }
            }
        };
        let piped = self.pipeline.call_with(&context, handle);
        let outcome = match left {
            None => unless_gone(hangup.as_ref(), piped).await,
            Some(left) => match unless_gone_within(hangup.as_ref(), left, piped).await {
                Ok(in_time) => Ok(in_time?),
                Err(gone) => Err(gone),
            },
        };
        match outcome {
            Ok(outcome) => {
                let clients_fault = clients_fault.into_inner().unwrap_or_else(PoisonError::into_inner);
                match (outcome, clients_fault) {
                    (Ok(_stand_in), Some(error)) => Err(error),
                    (outcome, _) => outcome.map_err(Into::into),
                }
            }
            Err(gone) => Err(gone.into()),
        }
    }
}

/// A layer that says it runs a request once has run it again.
#[derive(Debug, thiserror::Error)]
#[error("a layer of the inbound pipeline ran a request twice")]
struct RequestUsed;
