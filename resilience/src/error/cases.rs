//! Every refusal of this crate: its code, its status, its sentence. The one place where they are written.

use std::{fmt, time::Duration};

use poem::http::StatusCode;

use super::{Error, whole_seconds};
use crate::{
    breaker::CircuitOpen,
    concurrency::Overloaded,
    deadline::{Cancelled, DeadlineExceeded},
    pipeline::{PermitLimitExceeded, RateLimited},
    store::Refused,
};

/// A refusal that this crate makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// Its [`code`](Error::code): the member `error` of the answer's body.
    pub code: &'static str,
    /// Its status.
    pub status: StatusCode,
    /// Whether it says when to try again.
    pub says_when: bool,
    /// The sentence that the client sees; some say a number besides.
    pub message: &'static str,
}

/// Declares the cases, and lists them all.
macro_rules! cases {
    ($($name:ident = $status:ident $code:literal $(says_when $says_when:literal)?, $message:literal;)*) => {
        $(const $name: Case = Case {
            code: $code,
            status: $status,
            says_when: false $(|| $says_when)?,
            message: $message,
        };)*

        pub(super) const ALL: &[Case] = &[$($name),*];
    };
}

const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const BAD_REQUEST: StatusCode = StatusCode::BAD_REQUEST;
const TOO_LARGE: StatusCode = StatusCode::PAYLOAD_TOO_LARGE;
const REQUEST_TIMEOUT: StatusCode = StatusCode::REQUEST_TIMEOUT;
const MEDIA_TYPE: StatusCode = StatusCode::UNSUPPORTED_MEDIA_TYPE;
const ABSENT: StatusCode = StatusCode::NOT_FOUND;
const METHOD: StatusCode = StatusCode::METHOD_NOT_ALLOWED;
const GATEWAY_TIMEOUT: StatusCode = StatusCode::GATEWAY_TIMEOUT;
const GATEWAY: StatusCode = StatusCode::BAD_GATEWAY;
const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

cases! {
    MISSING_API_KEY = UNAUTHORIZED "missing_api_key", "No API key was sent.";
    INVALID_API_KEY = UNAUTHORIZED "invalid_api_key", "The API key is not valid.";
    AUTH_UNAVAILABLE = UNAVAILABLE "auth_unavailable" says_when true, "The caller cannot be verified at the moment.";
    FEATURE_DISABLED = UNAVAILABLE "feature_disabled", "This feature is switched off.";
    RATE_LIMITED = TOO_MANY "rate_limited" says_when true, "Too many requests.";
    PERMIT_LIMIT_EXCEEDED = TOO_MANY "permit_limit_exceeded", "This costs more than the limit ever lets pass at once.";
    LIMITER_UNAVAILABLE = UNAVAILABLE "limiter_unavailable" says_when true, "The request cannot be counted at the moment.";
    LOCKED_OUT = TOO_MANY "locked_out" says_when true, "Too many attempts.";
    ATTEMPTS_UNDER_WAY = TOO_MANY "attempts_under_way" says_when true, "Other attempts of this account or address are being checked.";
    LOCKOUT_UNAVAILABLE = UNAVAILABLE "lockout_unavailable" says_when true, "The attempt cannot be counted at the moment.";
    ACCOUNT_UNREADABLE = BAD_REQUEST "account_unreadable", "The request does not name one account.";
    BODY_TOO_LARGE = TOO_LARGE "body_too_large", "The body is too large.";
    BODY_TIMEOUT = REQUEST_TIMEOUT "body_timeout", "The body took too long to arrive.";
    GUARD_UNAVAILABLE = UNAVAILABLE "guard_unavailable", "The request cannot be checked at the moment.";
    OVERLOADED = UNAVAILABLE "overloaded" says_when true, "The service is busy.";
    TIMEOUT = GATEWAY_TIMEOUT "timeout", "The request took longer than its deadline.";
    CIRCUIT_OPEN = UNAVAILABLE "circuit_open" says_when true, "A dependency of this service is not available at the moment.";
    BAD_GATEWAY = GATEWAY "bad_gateway", "A dependency of this service did not answer well.";
    NOT_AN_OPERATOR = UNAUTHORIZED "not_an_operator", "Only operators may do this.";
    ORDER_INVALID = BAD_REQUEST "order_invalid", "The order makes no sense.";
    UNSUPPORTED_MEDIA_TYPE = MEDIA_TYPE "unsupported_media_type", "The body must be `application/json`.";
    NOT_FOUND = ABSENT "not_found", "There is nothing of this name.";
    METHOD_NOT_ALLOWED = METHOD "method_not_allowed", "This cannot be done here.";
    BREAKERS_UNAVAILABLE = UNAVAILABLE "breakers_unavailable" says_when true, "The store did not answer: an order may have been taken, or not.";
    CLIENT_CLOSED_REQUEST = CLIENT_CLOSED "client_closed_request", "The client has gone.";
    NOT_INSTALLED = INTERNAL "resilience_not_installed", "The service is not set up to guard this request.";
    IDENTITY_MISSING = INTERNAL "identity_missing", "The service is not set up to verify this request's caller.";
}

/// nginx's word for an answer that nobody reads.
const CLIENT_CLOSED: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => INTERNAL,
};

impl From<Case> for Error {
    fn from(case: Case) -> Self {
        Self::new(case.status, case.code, case.message)
    }
}

impl Error {
    pub(crate) fn missing_api_key() -> Self {
        MISSING_API_KEY.into()
    }

    pub(crate) fn invalid_api_key() -> Self {
        INVALID_API_KEY.into()
    }

    pub(crate) fn auth_unavailable() -> Self {
        AUTH_UNAVAILABLE.into()
    }

    pub(crate) fn feature_disabled(status: StatusCode) -> Self {
        Self::from(Case {
            status,
            ..FEATURE_DISABLED
        })
    }

    pub(crate) fn rate_limited(retry_after: Duration) -> Self {
        Self::from(RATE_LIMITED).told_to_wait(retry_after)
    }

    pub(crate) fn limiter_unavailable() -> Self {
        LIMITER_UNAVAILABLE.into()
    }

    /// The same for every account, whether it exists or not.
    pub(crate) fn locked_out(retry_after: Duration) -> Self {
        Self::from(LOCKED_OUT).told_to_wait(retry_after)
    }

    pub(crate) fn attempts_under_way(retry_after: Duration) -> Self {
        Self::from(ATTEMPTS_UNDER_WAY).told_to_wait(retry_after)
    }

    pub(crate) fn attempt_refused(refused: Refused) -> Self {
        match refused {
            Refused::Locked { retry_after } => Self::locked_out(retry_after),
            Refused::UnderWay { retry_after } => Self::attempts_under_way(retry_after),
        }
    }

    pub(crate) fn lockout_unavailable() -> Self {
        LOCKOUT_UNAVAILABLE.into()
    }

    pub(crate) fn account_unreadable() -> Self {
        ACCOUNT_UNREADABLE.into()
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        Self::from(BODY_TOO_LARGE).with_message(format!("The body has more than {limit} bytes."))
    }

    pub(crate) fn body_timeout() -> Self {
        BODY_TIMEOUT.into()
    }

    /// This process cannot ask the store for this request: too many wait before it.
    pub(crate) fn too_busy() -> Self {
        Self::from(OVERLOADED).with_retry_after(Duration::from_secs(1))
    }

    pub(crate) fn guard_unavailable() -> Self {
        GUARD_UNAVAILABLE.into()
    }

    pub(crate) fn timeout() -> Self {
        TIMEOUT.into()
    }

    #[cfg(feature = "reqwest")]
    pub(crate) fn bad_gateway() -> Self {
        BAD_GATEWAY.into()
    }

    /// Nobody that is known.
    pub(crate) fn not_an_operator() -> Self {
        NOT_AN_OPERATOR.into()
    }

    /// Somebody who may not do it.
    pub(crate) fn operator_forbidden() -> Self {
        Self::from(Case {
            status: StatusCode::FORBIDDEN,
            ..NOT_AN_OPERATOR
        })
    }

    pub(crate) fn order_invalid(mistake: &dyn fmt::Display) -> Self {
        Self::from(ORDER_INVALID).with_message(format!("The order makes no sense: {mistake}."))
    }

    pub(crate) fn unsupported_media_type() -> Self {
        UNSUPPORTED_MEDIA_TYPE.into()
    }

    pub(crate) fn not_found() -> Self {
        NOT_FOUND.into()
    }

    pub(crate) fn method_not_allowed() -> Self {
        METHOD_NOT_ALLOWED.into()
    }

    pub(crate) fn breakers_unavailable() -> Self {
        BREAKERS_UNAVAILABLE.into()
    }

    pub(crate) fn client_closed_request() -> Self {
        CLIENT_CLOSED_REQUEST.into()
    }

    pub(crate) fn not_installed() -> Self {
        NOT_INSTALLED.into()
    }

    pub(crate) fn identity_missing() -> Self {
        IDENTITY_MISSING.into()
    }

    fn told_to_wait(self, retry_after: Duration) -> Self {
        let message = format!("{} Retry after {} s.", self.message(), whole_seconds(retry_after));
        self.with_message(message).with_retry_after(retry_after)
    }

    fn with_message(mut self, message: String) -> Self {
        self.0.message = message.into();
        self
    }
}

impl From<CircuitOpen> for Error {
    fn from(open: CircuitOpen) -> Self {
        Self::from(CIRCUIT_OPEN)
            .with_retry_after(open.retry_after().unwrap_or(Duration::from_secs(1)))
            .with_source(open)
    }
}

impl From<Overloaded> for Error {
    fn from(overloaded: Overloaded) -> Self {
        Self::from(OVERLOADED)
            .with_retry_after(overloaded.retry_after())
            .with_source(overloaded)
    }
}

impl From<RateLimited> for Error {
    fn from(limited: RateLimited) -> Self {
        Self::rate_limited(limited.retry_after()).with_source(limited)
    }
}

impl From<PermitLimitExceeded> for Error {
    fn from(over: PermitLimitExceeded) -> Self {
        Self::from(PERMIT_LIMIT_EXCEEDED).with_source(over)
    }
}

impl From<DeadlineExceeded> for Error {
    fn from(exceeded: DeadlineExceeded) -> Self {
        Self::timeout().with_source(exceeded)
    }
}

impl From<Cancelled> for Error {
    fn from(cancelled: Cancelled) -> Self {
        match cancelled {
            Cancelled::DeadlineExceeded => Self::timeout(),
            Cancelled::Abandoned => Self::client_closed_request(),
        }
        .with_source(cancelled)
    }
}
