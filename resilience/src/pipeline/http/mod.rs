//! Calls with `reqwest`: what their answers say, and the deadline as a header. With the feature `reqwest`.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use resilience::{
//!     breaker::CircuitBreaker,
//!     pipeline::{Pipeline, http::{Http, HttpError, RequestExt as _, ResponseExt as _}},
//! };
//!
//! # async fn quote() -> Result<String, Box<dyn std::error::Error>> {
//! let client = reqwest::Client::new();
//! let payments = Pipeline::builder()
//!     .classify(Http::idempotent())
//!     .deadline(Duration::from_secs(2))
//!     .retry(3)
//!     .breaker(CircuitBreaker::new("payments", Default::default())?)
//!     .deadline(Duration::from_millis(500))
//!     .build();
//!
//! let quote = payments
//!     .call(|| async {
//!         let request = client.get("http://payments/quote").with_deadline();
//!         // The body is read inside the call: within the deadline, and made again with it.
//!         Ok::<_, HttpError>(request.send().await?.checked()?.text().await?)
//!     })
//!     .await?;
//! # Ok(quote)
//! # }
//! ```
//!
//! # What an answer says
//!
//! | answer | to breakers | made again |
//! |---|---|---|
//! | 1xx to 3xx | success | no |
//! | 429 | neutral: it works, and limits | yes, after its `Retry-After` |
//! | other 4xx | neutral: not the dependency's failure | no |
//! | 5xx | failure | yes, after its `Retry-After` if it has one |
//! | no connection | failure | yes |
//! | connection broken, body cut off, out of time | failure | yes |
//! | body that is not what was expected, too many redirects | failure | no |
//! | request that could not be built | neutral | no |
//!
//! # Who decides what may be repeated
//!
//! The caller, when it makes the pipeline. [`Http::idempotent`] repeats as the table says: for `GET`, `PUT`, `DELETE`, and
//! a `POST` with an idempotency key. [`Http::not_idempotent`] repeats only what the dependency has surely not begun to
//! work on: a connection that could not be made, and a 429.

#[cfg(test)]
mod tests;

use std::{
    error::Error as StdError,
    fmt, io,
    time::{Duration, SystemTime},
};

use ::reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};
use poem::error::ResponseError;

use super::classify::{Classify, Verdict};
use crate::{deadline, error::Error};

/// The header in which a deadline goes on unless another is named: the whole milliseconds that are left.
pub const DEADLINE_HEADER: HeaderName = HeaderName::from_static("x-deadline-ms");

/// Judges answers of HTTP services; see the [module](self) for its table.
///
/// It is for calls that return `Result<reqwest::Response, reqwest::Error>`, where a 500 is an `Ok` that may be made again,
/// and comes out as an `Ok` at last; and for calls that return an [`HttpError`], with any value.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    idempotent: bool,
}

impl Http {
    /// For requests that may be sent twice.
    #[must_use]
    pub const fn idempotent() -> Self {
        Self { idempotent: true }
    }

    /// For requests that must not be carried out twice, such as a `POST` that pays.
    #[must_use]
    pub const fn not_idempotent() -> Self {
        Self { idempotent: false }
    }

    fn status(self, status: StatusCode, retry_after: Option<Duration>) -> Verdict {
        let verdict = match status.as_u16() {
            429 => Verdict::neutral().retryable(),
            400..500 => Verdict::neutral(),
            ..400 => Verdict::success(),
            _ => self.cut_off(),
        };
        retry_after.map_or(verdict, |wait| verdict.with_retry_after(wait))
    }

    /// An attempt that was cut off may have been carried out.
    fn cut_off(self) -> Verdict {
        if self.idempotent {
            Verdict::failure().retryable()
        } else {
            Verdict::failure()
        }
    }

    fn error(self, error: &::reqwest::Error) -> Verdict {
        if let Some(status) = error.status() {
            return self.status(status, None);
        }
        if error.is_builder() {
            return Verdict::neutral();
        }
        // Before the others: a connection that timed out was never made.
        if error.is_connect() {
            return Verdict::failure().retryable();
        }
        if error.is_timeout() || error.is_request() || error.is_body() || is_io(error) {
            return self.cut_off();
        }
        Verdict::failure()
    }
}

impl Classify<Response, ::reqwest::Error> for Http {
    fn classify(&self, answer: Result<&Response, &::reqwest::Error>) -> Verdict {
        match answer {
            Ok(response) => self.status(response.status(), retry_after(response.headers(), SystemTime::now())),
            Err(error) => self.error(error),
        }
    }

    fn timed_out(&self) -> Verdict {
        self.cut_off()
    }
}

impl<T> Classify<T, HttpError> for Http {
    fn classify(&self, answer: Result<&T, &HttpError>) -> Verdict {
        match answer {
            Ok(_) => Verdict::success(),
            Err(HttpError::Status(status)) => self.status(status.status, status.retry_after),
            Err(HttpError::Request(error)) => self.error(error),
        }
    }

    fn timed_out(&self) -> Verdict {
        self.cut_off()
    }
}

/// Whether the connection is to blame. reqwest calls a body that was cut off an error of decoding, as one of the wrong form.
fn is_io(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| error.is::<io::Error>())
}

/// A call that did not give what it was made for. As a poem error it answers 502 `bad_gateway`, and tells the client
/// nothing of the dependency.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request, the connection or the body failed.
    #[error("the request failed")]
    Request(#[from] ::reqwest::Error),
    /// The answer's status was an error.
    #[error(transparent)]
    Status(#[from] ErrorStatus),
}

/// An answer with a status from 400 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorStatus {
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl ErrorStatus {
    /// The status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// What the answer asked for in `Retry-After`.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was {}", self.status)
    }
}

impl StdError for ErrorStatus {}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        Self::bad_gateway().with_source(error)
    }
}

impl ResponseError for HttpError {
    fn status(&self) -> StatusCode {
        StatusCode::BAD_GATEWAY
    }

    fn as_response(&self) -> poem::Response {
        Error::bad_gateway().as_response()
    }
}

/// What [`reqwest::Response`] gains.
pub trait ResponseExt: Sized {
    /// The response, or its status as an error if that is from 400 on. Unlike `error_for_status` it keeps `Retry-After`.
    ///
    /// # Errors
    ///
    /// [`ErrorStatus`], which becomes an [`HttpError`] with `?`.
    fn checked(self) -> Result<Self, ErrorStatus>;
}

impl ResponseExt for Response {
    fn checked(self) -> Result<Self, ErrorStatus> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            let retry_after = retry_after(self.headers(), SystemTime::now());
            return Err(ErrorStatus { status, retry_after });
        }
        Ok(self)
    }
}

/// What [`reqwest::RequestBuilder`] gains.
pub trait RequestExt: Sized {
    /// Sends on how much time is left, in [`DEADLINE_HEADER`]. Outside of any deadline the header is left out.
    #[must_use]
    fn with_deadline(self) -> Self {
        self.with_deadline_as(DEADLINE_HEADER)
    }

    /// [`with_deadline`](Self::with_deadline) in a header of another name.
    #[must_use]
    fn with_deadline_as(self, name: HeaderName) -> Self;
}

impl RequestExt for RequestBuilder {
    fn with_deadline_as(self, name: HeaderName) -> Self {
        match deadline::header_value() {
            Some(left) => self.header(name, left),
            None => self,
        }
    }
}

/// How long an answer asks to wait, given in seconds or as a date; `None` if it does not say, or says nothing of sense.
///
/// A date counts from the answer's own `Date` if there is one, so that the clocks of the two machines need not agree, and
/// from `now` if not. One that is past is no wait.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = |name| {
        let text = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(text.trim()).ok()
    };
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than there are numbers for is a wait too, and a long one.
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let until = date(RETRY_AFTER)?;
    let from = date(DATE).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or_default())
}
