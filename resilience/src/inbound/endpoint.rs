//! The middleware, and the endpoint that it makes.

use std::{fmt, sync::Arc};

use poem::{Endpoint, Middleware, Request, Response, Result};

use crate::{
    bound::Bound,
    chain::{Guards, behind},
    install::ResilienceEndpoint,
    runtime::Resilience,
};

/// Guards around a whole app: a poem middleware. Clones share their slots and quotas.
#[derive(Clone)]
pub struct Inbound {
    resilience: Resilience,
    bound: Arc<Bound>,
}

impl Inbound {
    pub(super) const fn new(resilience: Resilience, bound: Arc<Bound>) -> Self {
        Self { resilience, bound }
    }
}

impl<E: Endpoint> Middleware<E> for Inbound {
    type Output = ResilienceEndpoint<InboundEndpoint<E>>;

    fn transform(&self, inner: E) -> Self::Output {
        let guarded = InboundEndpoint {
            inner,
            bound: Arc::clone(&self.bound),
        };
        self.resilience.transform(guarded)
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("name", &self.bound.name)
            .finish_non_exhaustive()
    }
}

/// An app with guards around it, as `.with(inbound)` makes it.
pub struct InboundEndpoint<E> {
    inner: E,
    bound: Arc<Bound>,
}

impl<E> fmt::Debug for InboundEndpoint<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundEndpoint")
            .field("name", &self.bound.name)
            .finish_non_exhaustive()
    }
}

impl<E: Endpoint> Endpoint for InboundEndpoint<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        behind(Guards::Inbound(Arc::clone(&self.bound)), request, &self.inner).await
    }
}
