//! How a runtime reaches the guarded handlers of an app, and their headers its answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use poem::{Endpoint, FromRequest, IntoResponse, Middleware, Request, RequestBody, Response, Result};

use crate::{
    body::BodyFormat,
    error::{self, Error},
    runtime::Resilience,
    trail::DecidedHeaders,
};

/// What a request carries to its guarded handler.
#[derive(Clone)]
pub(crate) enum Installed {
    /// By `.with(resilience)`: with a place for the headers that the guards decide. The middleware that planted it
    /// writes them on whatever leaves.
    Planted(Arc<Plant>),
    /// By `.data(resilience)`.
    Plain(Resilience),
}

pub(crate) struct Plant {
    resilience: Resilience,
    format: BodyFormat,
    slot: Mutex<DecidedHeaders>,
}

impl Plant {
    fn slot(&self) -> MutexGuard<'_, DecidedHeaders> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Installed {
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let extensions = request.extensions();
        match extensions.get::<Arc<Plant>>() {
            Some(plant) => Some(Self::Planted(Arc::clone(plant))),
            None => extensions.get::<Resilience>().cloned().map(Self::Plain),
        }
    }

    /// Whether the request carries a place for headers that this very runtime has planted.
    fn is_planted_by(resilience: &Resilience, request: &Request) -> bool {
        let plant = request.extensions().get::<Arc<Plant>>();
        plant.is_some_and(|plant| Arc::ptr_eq(&plant.resilience.runtime, &resilience.runtime))
    }

    pub(crate) fn resilience(&self) -> &Resilience {
        match self {
            Self::Planted(plant) => &plant.resilience,
            Self::Plain(resilience) => resilience,
        }
    }

    /// In which format this request's refusals are written.
    pub(crate) fn format(&self, request: &Request) -> BodyFormat {
        match self {
            Self::Planted(plant) => plant.format,
            Self::Plain(resilience) => resilience.format(request),
        }
    }

    /// Puts `headers` where they will stand on whatever leaves; gives them back if there is no such place.
    pub(crate) fn plant(&self, headers: DecidedHeaders) -> DecidedHeaders {
        match self {
            Self::Planted(plant) => {
                plant.slot().extend(headers);
                DecidedHeaders::default()
            }
            Self::Plain(_) => headers,
        }
    }

    /// Sees to it that `headers`, those that were not planted, stand on the answer. With a slot the outcome stays what it
    /// is, so that a handler's `Err` reaches the user's `catch_error`; without one an `Err` becomes its response here.
    pub(crate) fn finish(
        &self,
        outcome: Result<Response>,
        headers: DecidedHeaders,
        format: BodyFormat,
    ) -> Result<Response> {
        match self {
            Self::Planted(_) => outcome,
            Self::Plain(_) => Ok(written(headers, outcome, format)),
        }
    }
}

/// The answer, which it is for good now, with the headers on it.
fn written(headers: DecidedHeaders, outcome: Result<Response>, format: BodyFormat) -> Response {
    let mut response = outcome.unwrap_or_else(|error| match error::refusal_in(&error) {
        // A handler may refuse as the guards do: then it looks the same.
        Some(refusal) => refusal.to_response(format),
        None => error.into_response(),
    });
    headers.write(&mut response);
    response
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
        if Installed::is_planted_by(&self.resilience, &request) {
            // Whoever stands further out writes the headers.
            return self.inner.call(request).await.map(IntoResponse::into_response);
        }
        let format = self.resilience.format(&request);
        let plant = Arc::new(Plant {
            resilience: self.resilience.clone(),
            format,
            slot: Mutex::default(),
        });
        request.extensions_mut().insert(Arc::clone(&plant));
        let outcome = match &self.resilience.runtime.dependencies {
            None => self.inner.call(request).await,
            Some(own) => Box::pin(own.scope(self.inner.call(request))).await,
        };
        let outcome = outcome.map(IntoResponse::into_response);
        let headers = std::mem::take(&mut *plant.slot());
        let is_ours = |error: &poem::Error| error::refusal_in(error).is_some();
        if headers.is_empty() && !outcome.as_ref().is_err_and(is_ours) {
            // An error of the user's own, of a handler that is not guarded: none of our business.
            outcome
        } else {
            Ok(written(headers, outcome, format))
        }
    }
}

/// The runtime that guards this request, for handlers that show its state.
impl<'a> FromRequest<'a> for Resilience {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        match Installed::of(request) {
            Some(installed) => Ok(installed.resilience().clone()),
            None => Err(Error::not_installed().into()),
        }
    }
}
