//! Breakers over HTTP, for operators: JSON routes to mount where you like.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /` | lists all breakers: `{"breakers":[…]}`, each a [`Status`](super::Status) |
//! | `GET /payments` | shows one |
//! | `PUT /payments/override` | holds it: `{"state":"open","reason":"maintenance","expires_in":"10m"}` |
//! | `DELETE /payments/override` | lets go of it |
//!
//! An order's `state` is `open` or `closed`, its `reason` must say something, and without `expires_in` it stands until
//! somebody lets go. Who has given it is what the check says, never the body. Every order is logged.
//!
//! ```
//! use poem::Route;
//! use resilience::{Resilience, sharing::admin::{BearerToken, BreakerAdmin}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let resilience = Resilience::builder().memory().share_breakers("payments-team").build()?;
//! let breakers = resilience.shared_breakers().ok_or("the builder was told to share")?;
//! // From the environment, in a service.
//! let token = BearerToken::new("on-call", "3f1c9a04e7b25d68")?;
//!
//! let app = Route::new().nest("/admin/breakers", BreakerAdmin::new(breakers, token));
//! # drop(app);
//! # Ok(())
//! # }
//! ```

mod check;
mod order;

use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use percent_encoding::percent_decode_str;
use poem::{
    Endpoint, IntoResponse, Request, Response,
    http::{HeaderValue, Method, header},
    web::Json,
};
use serde_json::json;
use tokio::time::timeout;

pub use self::check::{Author, BearerToken, Denied, InvalidToken, OperatorCheck};
use self::order::Wanted;
use super::{
    HoldState, Order, OrderError, SharedBreakers,
    operator::{AUTHOR_BYTES, NAME_BYTES},
    status::millis,
};
use crate::{
    body::{BodyFormat, ErrorBody},
    error::Error,
    install::Installed,
};

/// How long a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// What is said to those whom nobody could check, or for whom the store did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The routes of the module [`admin`](self). Mount them with [`Route::nest`](poem::Route::nest).
///
/// Nobody gets in whom the check has not named; a check that fails, panics or takes longer than 5 seconds names nobody.
/// Refusals look like all others of this crate, and no answer is to be cached. An order must be `application/json`, which no
/// form of another site can send, and has at most 4 KiB.
pub struct BreakerAdmin {
    breakers: SharedBreakers,
    check: Box<dyn OperatorCheck>,
    challenge: HeaderValue,
}

impl BreakerAdmin {
    /// Routes for those whom `check` lets in: a [`BearerToken`], or a check of your own.
    pub fn new(breakers: SharedBreakers, check: impl OperatorCheck) -> Self {
        Self {
            breakers,
            challenge: HeaderValue::from_str(check.challenge()).unwrap_or(HeaderValue::from_static("Bearer")),
            check: Box::new(check),
        }
    }

    async fn answer(&self, mut request: Request, format: BodyFormat) -> Result<Response, Error> {
        // Before anything else: who may not be here learns nothing, not even which names there are.
        let author = self.author(&request).await?;
        let path = Path::of(request.uri().path())?;
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            Path::All if looks => self.list().await,
            Path::One(name) if looks => self.show(&name).await,
            Path::Override(name) if request.method() == Method::PUT => {
                let wanted = Wanted::read(&mut request).await?;
                self.hold(&name, wanted, author).await
            }
            Path::Override(name) if request.method() == Method::DELETE => self.release(&name, author).await,
            Path::All | Path::One(_) => Ok(allowed("GET, HEAD", format)),
            Path::Override(_) => Ok(allowed("PUT, DELETE", format)),
        }
    }

    async fn author(&self, request: &Request) -> Result<Author, Error> {
        let unavailable = |why: &str| {
            tracing::error!(why, "an operator cannot be checked, and is turned away");
            Error::auth_unavailable().with_retry_after(RETRY_AFTER)
        };
        let check = AssertUnwindSafe(async { self.check.author(request).await });
        match timeout(CHECK_TIMEOUT, check.catch_unwind()).await {
            Ok(Ok(Ok(author))) if AUTHOR_BYTES.contains(&author.0.len()) => Ok(author),
            Ok(Ok(Ok(_))) => Err(unavailable(
                "the check names an author of no bytes, or of more than 128",
            )),
            Ok(Ok(Err(Denied::Unknown))) => Err(Error::not_an_operator().with_challenge(self.challenge.clone())),
            Ok(Ok(Err(Denied::Forbidden))) => Err(Error::operator_forbidden()),
            Ok(Ok(Err(Denied::Unavailable(error)))) => Err(unavailable(&error.to_string())),
            Ok(Err(_panic)) => Err(unavailable("the check has panicked")),
            Err(_elapsed) => Err(unavailable("the check takes longer than 5 s")),
        }
    }

    async fn list(&self) -> Result<Response, Error> {
        let breakers = self.breakers.list().await.map_err(refusal)?;
        Ok(Json(json!({ "breakers": breakers })).into_response())
    }

    async fn show(&self, name: &str) -> Result<Response, Error> {
        let breakers = self.breakers.list().await.map_err(refusal)?;
        let status = breakers.into_iter().find(|status| status.name == name);
        Ok(Json(status.ok_or_else(Error::not_found)?).into_response())
    }

    async fn hold(&self, name: &str, wanted: Wanted, author: Author) -> Result<Response, Error> {
        let Wanted {
            state,
            reason,
            expires_in,
        } = wanted;
        let order = Order::because(&reason).by(&author.0);
        let order = match expires_in {
            Some(lasts) => order.lasting(lasts),
            None => order,
        };
        let held = match state {
            HoldState::Open => self.breakers.hold_open(name, order).await,
            HoldState::Closed => self.breakers.hold_closed(name, order).await,
        };
        let (author, expires_in) = (author.0, expires_in.map(millis));
        let (breaker, state) = (name, state.as_str());
        match held {
            Ok(()) => tracing::info!(
                breaker,
                state,
                author,
                reason,
                expires_in_ms = expires_in,
                "an operator holds a breaker"
            ),
            Err(error) => {
                tracing::warn!(breaker, state, author, reason, %error, "an operator's order may not have been taken");
                return Err(refusal(error));
            }
        }
        let order = json!({ "state": state, "reason": reason, "author": author, "ends_in_ms": expires_in });
        Ok(Json(json!({ "name": name, "override": order })).into_response())
    }

    async fn release(&self, name: &str, author: Author) -> Result<Response, Error> {
        let (breaker, author) = (name, author.0);
        let released = self.breakers.release(name).await.map_err(|error| {
            tracing::warn!(breaker, author, %error, "an operator's release may not have been taken");
            refusal(error)
        })?;
        tracing::info!(breaker, author, was_held = released, "an operator lets go of a breaker");
        Ok(Json(json!({ "name": name, "released": released })).into_response())
    }
}

impl Endpoint for BreakerAdmin {
    type Output = Response;

    async fn call(&self, request: Request) -> poem::Result<Response> {
        let format = format(&request);
        let answer = self.answer(request, format).await;
        let mut response = answer.unwrap_or_else(|refusal| refusal.to_response(format));
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

impl fmt::Debug for BreakerAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerAdmin")
            .field("breakers", &self.breakers)
            .finish_non_exhaustive()
    }
}

/// As the runtime around it writes refusals, if there is one.
fn format(request: &Request) -> BodyFormat {
    match Installed::of(request) {
        Some(installed) => installed.format(request),
        None => ErrorBody::default().format(request.headers()),
    }
}

fn refusal(error: OrderError) -> Error {
    match error {
        OrderError::Invalid { .. } => Error::order_invalid(&error),
        OrderError::Store(_) => Error::breakers_unavailable()
            .with_retry_after(RETRY_AFTER)
            .with_source(error),
    }
}

fn allowed(methods: &'static str, format: BodyFormat) -> Response {
    let mut response = Error::method_not_allowed().to_response(format);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

/// What a request is about, below the place where the routes are mounted.
enum Path {
    All,
    One(String),
    Override(String),
}

impl Path {
    fn of(path: &str) -> Result<Self, Error> {
        let path = path.strip_prefix('/').unwrap_or(path);
        // Split first: a slash in a name is sent as `%2F`.
        match path.split_once('/') {
            None if path.is_empty() => Ok(Self::All),
            None => Ok(Self::One(name(path)?)),
            Some((segment, "override")) => Ok(Self::Override(name(segment)?)),
            Some(_) => Err(Error::not_found()),
        }
    }
}

fn name(segment: &str) -> Result<String, Error> {
    let name = percent_decode_str(segment).decode_utf8();
    let name = name.map_err(|_| Error::order_invalid(&"a breaker's name must be UTF-8"))?;
    if NAME_BYTES.contains(&name.len()) {
        Ok(name.into_owned())
    } else {
        Err(Error::order_invalid(&"a breaker's name must have 1 to 128 bytes"))
    }
}
