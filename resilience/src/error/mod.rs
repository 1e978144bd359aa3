//! What a guard answers in the handler's place, and what every other refusal of this crate is told as.
//!
//! All of them have a [`code`](Error::code), an [`http_status`](Error::http_status) and perhaps a
//! [`retry_after`](Error::retry_after). A handler that hands one on by `?` answers with them; [`describe`] finds one
//! anywhere among the causes of another error.

mod cases;
mod describe;
mod poem_error;

use std::{borrow::Cow, error::Error as StdError, fmt, sync::Arc, time::Duration};

use poem::{
    Response,
    http::{HeaderValue, StatusCode, header},
};

pub(crate) use self::poem_error::refusal_in;
pub use self::{cases::Case, describe::describe};
use crate::body::BodyFormat;

/// A refusal, with everything that its answer needs: a stable code, an HTTP status and when to try again.
///
/// Guards of your own return it, and a handler may too: it is a poem [`ResponseError`](poem::error::ResponseError).
///
/// ```
/// use poem::http::StatusCode;
/// use resilience::Error;
///
/// let error = Error::new(StatusCode::PAYMENT_REQUIRED, "plan_required", "This needs the paid plan.");
/// assert_eq!(error.code(), "plan_required");
/// assert_eq!(error.http_status(), StatusCode::PAYMENT_REQUIRED);
/// ```
#[derive(Clone, Debug)]
pub struct Error(Box<Refusal>);

/// Behind a pointer: a `Result` that carries it stays small where nothing is refused.
#[derive(Clone, Debug)]
struct Refusal {
    status: StatusCode,
    code: Cow<'static, str>,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    challenge: Option<HeaderValue>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A refusal with a status, a code for machines and a sentence for people. Both are shown to the client.
    #[must_use]
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Refusal {
            status,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            challenge: None,
            source: None,
        }))
    }

    /// Tells the client when to try again. Sent in whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.0.retry_after = Some(retry_after);
        self
    }

    /// Adds what caused it: for logs, never shown to the client.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The refusals that this crate makes: the table "Errors" of the book.
    #[must_use]
    pub const fn cases() -> &'static [Case] {
        cases::ALL
    }

    pub(crate) fn with_challenge(mut self, challenge: HeaderValue) -> Self {
        self.0.challenge = Some(challenge);
        self
    }

    /// The stable name of the case, e.g. `rate_limited`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.0.code
    }

    /// The sentence that the client sees.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The status of the answer.
    #[must_use]
    pub fn http_status(&self) -> StatusCode {
        self.0.status
    }

    /// When to try again, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The answer, in this format.
    pub(crate) fn to_response(&self, format: BodyFormat) -> Response {
        let body = format.render(self.0.status, &self.0.code, &self.0.message);
        let mut response = Response::builder().status(self.0.status).body(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, format.content_type());
        if let Some(wait) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, number(whole_seconds(wait)));
        }
        if let Some(challenge) = &self.0.challenge {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge.clone());
        }
        response
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// A number as a header's value, with one allocation where http's own conversion makes two.
pub(crate) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_bytes(itoa::Buffer::new().format(number).as_bytes()).expect("digits")
}

/// Seconds for `Retry-After`: rounded up, so that a client which obeys is not early, and at least 1.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_round_up_to_at_least_one_second() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
        assert_eq!(whole_seconds(Duration::from_millis(2_001)), 3);
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_source_is_for_logs_only() {
        let error = Error::auth_unavailable().with_source("redis://user:secret@host is down");
        assert!(!error.to_string().contains("secret"));
        assert!(error.source().expect("it has one").to_string().contains("down"));
    }
}
