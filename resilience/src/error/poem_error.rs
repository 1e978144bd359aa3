//! Refusals as poem's errors: `?` in a handler answers with the right status and body.

use poem::{Response, error::ResponseError, http::StatusCode};

use super::{Error, describe};
use crate::{
    body::BodyFormat,
    breaker::{CallError, CircuitOpen},
    concurrency::Overloaded,
    deadline::{Cancelled, DeadlineExceeded},
    pipeline::{PermitLimitExceeded, RateLimited},
};

impl ResponseError for Error {
    fn status(&self) -> StatusCode {
        self.http_status()
    }

    fn as_response(&self) -> Response {
        self.to_response(BodyFormat::Json)
    }
}

/// An error that is told as the [`Error`] that it can be turned into.
macro_rules! responds_as_error {
    ($($error:ty),*) => {$(
        impl ResponseError for $error {
            fn status(&self) -> StatusCode {
                Error::from(self.clone()).http_status()
            }

            fn as_response(&self) -> Response {
                Error::from(self.clone()).as_response()
            }
        }
    )*};
}

responds_as_error!(
    CircuitOpen,
    Overloaded,
    RateLimited,
    PermitLimitExceeded,
    DeadlineExceeded,
    Cancelled
);

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

/// The refusal that an error of a handler stands for, if it is one of this crate's or is caused by one.
///
/// It counts if the error has the refusal's own status, as `?` makes it, or poem's 500, where nobody has chosen an answer:
/// an `anyhow::Error` around it, say. Any other status is the user's own decision.
pub(crate) fn refusal_in(error: &poem::Error) -> Option<Error> {
    let refusal = describe(std::error::Error::source(error)?)?;
    let status = error.status();
    (status == refusal.http_status() || status == StatusCode::INTERNAL_SERVER_ERROR).then_some(refusal)
}
