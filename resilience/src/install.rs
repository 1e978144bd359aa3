//! How a runtime reaches the guarded handlers of an app, and their headers its answers.

use std::sync::{Arc, Mutex, PoisonError};

use poem::{Endpoint, FromRequest, IntoResponse, Middleware, Request, RequestBody, Response, Result};

use crate::{error::Error, runtime::Resilience, trail::DecidedHeaders};

/// What a request carries to its guarded handler.
#[derive(Clone)]
pub(crate) struct Installed {
    pub(crate) resilience: Resilience,
    /// Where the headers go that the guards decide; the middleware that planted it writes them on whatever leaves.
    /// `None` where the runtime was installed as plain data.
    slot: Option<Slot>,
}

type Slot = Arc<Mutex<DecidedHeaders>>;

impl Installed {
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let extensions = request.extensions();
        extensions.get::<Self>().cloned().or_else(|| {
            extensions.get::<Resilience>().map(|resilience| Self {
                resilience: resilience.clone(),
                slot: None,
            })
        })
    }

    /// Sees to it that `headers` stand on the answer. With a slot the outcome stays what it is, so that a handler's
    /// `Err` reaches the user's `catch_error`; without one an `Err` becomes its response here.
    pub(crate) fn finish(&self, outcome: Result<Response>, headers: DecidedHeaders) -> Result<Response> {
        if let Some(slot) = &self.slot {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = headers;
            return outcome;
        }
        let mut response = outcome.unwrap_or_else(|error| error.into_response());
        headers.write(&mut response);
        Ok(response)
    }
}

/// Installs the runtime for all guarded handlers below. It belongs outermost, around `catch_error` and the like.
impl<E: Endpoint> Middleware<E> for Resilience {
    type Output = ResilienceEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        ResilienceEndpoint {
            inner,
            resilience: self.clone(),
        }
    }
}

/// An endpoint with a runtime for its guarded handlers, as `.with(resilience)` makes it.
#[derive(Debug)]
pub struct ResilienceEndpoint<E> {
    inner: E,
    resilience: Resilience,
}

impl<E: Endpoint> Endpoint for ResilienceEndpoint<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        let slot = Slot::default();
        request.extensions_mut().insert(Installed {
            resilience: self.resilience.clone(),
            slot: Some(Arc::clone(&slot)),
        });
        let outcome = self.inner.call(request).await.map(IntoResponse::into_response);
        let headers = std::mem::take(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner));
        if headers.is_empty() {
            return outcome;
        }
        let mut response = outcome.unwrap_or_else(|error| error.into_response());
        headers.write(&mut response);
        Ok(response)
    }
}

/// The runtime that guards this request, for handlers that show its state.
impl<'a> FromRequest<'a> for Resilience {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        match Installed::of(request) {
            Some(installed) => Ok(installed.resilience),
            None => Err(Error::not_installed().into()),
        }
    }
}
