//! What a pipeline answers in the call's place.

use std::{error::Error as StdError, fmt, time::Duration};

use poem::http::StatusCode;

use super::kinds::{AnyRejection, Kinds};
use crate::error::Error;

/// Why a pipeline gave no value.
///
/// `K` says which rejections can come out of this very pipeline. One that cannot has a type without values
/// ([`Infallible`](std::convert::Infallible)), so that a `match` by value need not name it:
///
/// ```
/// use std::{io, time::Duration};
///
/// use resilience::pipeline::{Pipeline, PipelineError};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let pipeline = Pipeline::builder().deadline(Duration::from_millis(500)).build();
/// let answer = pipeline.call(|| async { Err::<u32, _>(io::Error::other("no route")) }).await;
/// match answer {
///     Ok(value) => println!("{value}"),
///     Err(PipelineError::Inner(error)) => println!("the call: {error}"),
///     Err(PipelineError::Timeout(late)) => println!("{late}"),
///     // No breaker and no limits in this pipeline: nothing else to name.
/// }
/// # }
/// ```
///
/// The rejection itself is found along [`source`](StdError::source) by downcasting. As an error of a handler it answers
/// the status below; the call's own error answers what it answers elsewhere.
///
/// | variant | [`code`](Self::code) | [`http_status`](Self::http_status) |
/// |---|---|---|
/// | `Inner` | none | none |
/// | `Timeout` | `timeout` | 504 |
/// | `Open` | `circuit_open` | 503 |
/// | `Overloaded` | `overloaded` | 503 |
/// | `RateLimited` | `rate_limited` | 429 |
/// | `PermitLimitExceeded` | `permit_limit_exceeded` | 429 |
pub enum PipelineError<E, K: Kinds = AnyRejection> {
    /// The call was made, and this is its own error: the last attempt's.
    Inner(E),
    /// A deadline of the pipeline, or the budget of the request around it, ran out.
    Timeout(K::Timeout),
    /// The breaker refused.
    Open(K::Open),
    /// All places of the bulkhead were taken.
    Overloaded(K::Overloaded),
    /// The rate limit refused; later it would admit the call.
    RateLimited(K::RateLimited),
    /// The call costs more than the rate limit ever admits at once.
    PermitLimitExceeded(K::PermitLimit),
}

impl<E, K: Kinds> PipelineError<E, K> {
    /// The call's own error; `None` for a rejection.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            _ => None,
        }
    }

    /// The rejection's stable name; `None` for the call's own error.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        Some(match self {
            Self::Inner(_) => return None,
            Self::Timeout(_) => "timeout",
            Self::Open(_) => "circuit_open",
            Self::Overloaded(_) => "overloaded",
            Self::RateLimited(_) => "rate_limited",
            Self::PermitLimitExceeded(_) => "permit_limit_exceeded",
        })
    }

    /// The status that the rejection answers with; `None` for the call's own error.
    #[must_use]
    pub fn http_status(&self) -> Option<StatusCode> {
        Some(match self {
            Self::Inner(_) => return None,
            Self::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Open(_) | Self::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::RateLimited(_) | Self::PermitLimitExceeded(_) => StatusCode::TOO_MANY_REQUESTS,
        })
    }

    /// How long until the pipeline would let a call in, as far as it knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Open(open) => open.clone().into().retry_after(),
            Self::Overloaded(full) => Some(full.clone().into().retry_after()),
            Self::RateLimited(limited) => Some(limited.clone().into().retry_after()),
            Self::Inner(_) | Self::Timeout(_) | Self::PermitLimitExceeded(_) => None,
        }
    }

    /// Turns the call's own error into another; rejections stay.
    pub fn map<F>(self, convert: impl FnOnce(E) -> F) -> PipelineError<F, K> {
        match self {
            Self::Inner(error) => PipelineError::Inner(convert(error)),
            Self::Timeout(late) => PipelineError::Timeout(late),
            Self::Open(open) => PipelineError::Open(open),
            Self::Overloaded(full) => PipelineError::Overloaded(full),
            Self::RateLimited(limited) => PipelineError::RateLimited(limited),
            Self::PermitLimitExceeded(over) => PipelineError::PermitLimitExceeded(over),
        }
    }

    /// The same error in a larger set of kinds, usually [`AnyRejection`]: what signatures can name.
    pub fn widen<L: Kinds>(self) -> PipelineError<E, L>
    where
        K::Timeout: Into<L::Timeout>,
        K::Open: Into<L::Open>,
        K::Overloaded: Into<L::Overloaded>,
        K::RateLimited: Into<L::RateLimited>,
        K::PermitLimit: Into<L::PermitLimit>,
    {
        match self {
            Self::Inner(error) => PipelineError::Inner(error),
            Self::Timeout(late) => PipelineError::Timeout(late.into()),
            Self::Open(open) => PipelineError::Open(open.into()),
            Self::Overloaded(full) => PipelineError::Overloaded(full.into()),
            Self::RateLimited(limited) => PipelineError::RateLimited(limited.into()),
            Self::PermitLimitExceeded(over) => PipelineError::PermitLimitExceeded(over.into()),
        }
    }

    /// Folds the rejections into the call's own error type, where that can hold them.
    pub fn flatten(self) -> E
    where
        E: From<Error>,
    {
        match self.split() {
            Ok(error) => error,
            Err(rejection) => rejection.into(),
        }
    }

    /// The call's own error, or the rejection as this crate's error.
    pub(crate) fn split(self) -> Result<E, Error> {
        Err(match self {
            Self::Inner(error) => return Ok(error),
            Self::Timeout(late) => late.into().into(),
            Self::Open(open) => open.into().into(),
            Self::Overloaded(full) => full.into().into(),
            Self::RateLimited(limited) => limited.into().into(),
            Self::PermitLimitExceeded(over) => over.into().into(),
        })
    }
}

impl<E: fmt::Debug, K: Kinds> fmt::Debug for PipelineError<E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => f.debug_tuple("Inner").field(error).finish(),
            Self::Timeout(late) => f.debug_tuple("Timeout").field(late).finish(),
            Self::Open(open) => f.debug_tuple("Open").field(open).finish(),
            Self::Overloaded(full) => f.debug_tuple("Overloaded").field(full).finish(),
            Self::RateLimited(limited) => f.debug_tuple("RateLimited").field(limited).finish(),
            Self::PermitLimitExceeded(over) => f.debug_tuple("PermitLimitExceeded").field(over).finish(),
        }
    }
}

impl<E: Clone, K: Kinds> Clone for PipelineError<E, K> {
    fn clone(&self) -> Self {
        match self {
            Self::Inner(error) => Self::Inner(error.clone()),
            Self::Timeout(late) => Self::Timeout(late.clone()),
            Self::Open(open) => Self::Open(open.clone()),
            Self::Overloaded(full) => Self::Overloaded(full.clone()),
            Self::RateLimited(limited) => Self::RateLimited(limited.clone()),
            Self::PermitLimitExceeded(over) => Self::PermitLimitExceeded(over.clone()),
        }
    }
}

impl<E, K: Kinds> fmt::Display for PipelineError<E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner(_) => "the call failed",
            Self::Timeout(_) => "the call ran out of time",
            Self::Open(_) => "the call was refused by a circuit breaker",
            Self::Overloaded(_) => "the call was refused by a full bulkhead",
            Self::RateLimited(_) => "the call was refused by a rate limit",
            Self::PermitLimitExceeded(_) => "the call costs more than its rate limit admits",
        })
    }
}

impl<E: StdError + 'static, K: Kinds> StdError for PipelineError<E, K> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(match self {
            Self::Inner(error) => error,
            Self::Timeout(late) => late,
            Self::Open(open) => open,
            Self::Overloaded(full) => full,
            Self::RateLimited(limited) => limited,
            Self::PermitLimitExceeded(over) => over,
        })
    }
}

/// A rejection answers as the table at [`PipelineError`] says, and the call's own error whatever it answers elsewhere:
/// `?` in a handler does what it should.
impl<E: Into<poem::Error>, K: Kinds> From<PipelineError<E, K>> for poem::Error {
    fn from(error: PipelineError<E, K>) -> Self {
        match error {
            PipelineError::Inner(error) => error.into(),
            // As themselves, so that a catcher finds them by their own types.
            PipelineError::Timeout(late) => late.into().into(),
            PipelineError::Open(open) => open.into().into(),
            PipelineError::Overloaded(full) => full.into().into(),
            PipelineError::RateLimited(limited) => limited.into().into(),
            PipelineError::PermitLimitExceeded(over) => over.into().into(),
        }
    }
}

/// For a call whose own error is one of this crate's, or becomes one.
impl<E: Into<Error>, K: Kinds> From<PipelineError<E, K>> for Error {
    fn from(error: PipelineError<E, K>) -> Self {
        error.split().map_or_else(|rejection| rejection, Into::into)
    }
}
