//! What a guard answers in the handler's place.

use std::{borrow::Cow, error::Error as StdError, fmt, sync::Arc, time::Duration};

use poem::{
    Response,
    error::ResponseError,
    http::{HeaderValue, StatusCode, header},
};

use crate::{
    body::BodyFormat,
    breaker::{CallError, CircuitOpen},
    deadline::DeadlineExceeded,
};

/// A refusal, with everything that its answer needs: a stable code, an HTTP status and when to try again.
///
/// Guards of your own return it, and a handler may too: it is a poem [`ResponseError`].
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

/// The built-in cases. Their codes and statuses are the table in the book, "The chain".
impl Error {
    pub(crate) fn missing_api_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "missing_api_key", "No API key was sent.")
    }

    pub(crate) fn invalid_api_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "The API key is not valid.")
    }

    pub(crate) fn auth_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "auth_unavailable",
            "The caller cannot be verified at the moment.",
        )
    }

    pub(crate) fn feature_disabled(status: StatusCode) -> Self {
        Self::new(status, "feature_disabled", "This feature is switched off.")
    }

    pub(crate) fn rate_limited(retry_after: Duration) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            format!("Too many requests. Retry after {} s.", whole_seconds(retry_after)),
        )
        .with_retry_after(retry_after)
    }

    pub(crate) fn limiter_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "limiter_unavailable",
            "The request cannot be counted at the moment.",
        )
    }

    /// The same for every account, whether it exists or not.
    pub(crate) fn locked_out(retry_after: Duration) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "locked_out",
            format!("Too many attempts. Retry after {} s.", whole_seconds(retry_after)),
        )
        .with_retry_after(retry_after)
    }

    pub(crate) fn lockout_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "lockout_unavailable",
            "The attempt cannot be counted at the moment.",
        )
    }

    pub(crate) fn account_unreadable() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "account_unreadable",
            "The request does not name one account.",
        )
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("The body has more than {limit} bytes."),
        )
    }

    pub(crate) fn body_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            "The body took too long to arrive.",
        )
    }

    pub(crate) fn guard_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "guard_unavailable",
            "The request cannot be checked at the moment.",
        )
    }

    pub(crate) fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "The request took longer than its deadline.",
        )
    }

    /// Nobody reads it: the status is nginx's, for logs.
    pub(crate) fn client_closed_request() -> Self {
        Self::new(
            StatusCode::from_u16(499).expect("three digits"),
            "client_closed_request",
            "The client closed the connection before it was answered.",
        )
    }

    pub(crate) fn not_installed() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "resilience_not_installed",
            "The service is not set up to guard this request.",
        )
    }

    pub(crate) fn identity_missing() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "identity_missing",
            "The service is not set up to verify this request's caller.",
        )
    }
}

impl From<CircuitOpen> for Error {
    fn from(open: CircuitOpen) -> Self {
        let error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "circuit_open",
            "A dependency of this service is not available at the moment.",
        )
        .with_retry_after(open.retry_after().unwrap_or(Duration::from_secs(1)));
        error.with_source(open)
    }
}

impl From<DeadlineExceeded> for Error {
    fn from(exceeded: DeadlineExceeded) -> Self {
        Self::timeout().with_source(exceeded)
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

impl ResponseError for Error {
    fn status(&self) -> StatusCode {
        self.0.status
    }

    fn as_response(&self) -> Response {
        self.to_response(BodyFormat::Json)
    }
}

impl ResponseError for CircuitOpen {
    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn as_response(&self) -> Response {
        Error::from(*self).as_response()
    }
}

/// An open circuit answers 503 `circuit_open`, and the call's own error whatever it answers elsewhere: `?` in a handler
/// does what it should.
impl<E: Into<poem::Error>> From<CallError<E>> for poem::Error {
    fn from(error: CallError<E>) -> Self {
        match error {
            CallError::Open(open) => open.into(),
            CallError::Inner(error) => error.into(),
        }
    }
}

impl ResponseError for DeadlineExceeded {
    fn status(&self) -> StatusCode {
        StatusCode::GATEWAY_TIMEOUT
    }

    fn as_response(&self) -> Response {
        Error::from(*self).as_response()
    }
}

/// The refusal that an error of a handler stands for, if it is one of this crate's.
pub(crate) fn refusal_in(error: &poem::Error) -> Option<Error> {
    let refusal = error.downcast_ref::<Error>().cloned();
    let open = || error.downcast_ref::<CircuitOpen>().copied().map(Error::from);
    let late = || error.downcast_ref::<DeadlineExceeded>().copied().map(Error::from);
    refusal.or_else(open).or_else(late)
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
