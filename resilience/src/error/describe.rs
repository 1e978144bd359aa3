//! Finding a refusal among the causes of another error.

use std::{error::Error as StdError, io};

use super::Error;
use crate::{
    breaker::CircuitOpen,
    concurrency::Overloaded,
    deadline::{Cancelled, DeadlineExceeded},
    pipeline::{PermitLimitExceeded, RateLimited},
};

/// Longest chain of causes that is followed; a cycle has no end.
const DEPTH_MAX: usize = 64;

/// The refusal that an error stands for: itself, or the first of this crate's among its causes, however deep. `None` for
/// any other error.
///
/// What it finds has a code, a status and perhaps a wait, and knows nothing of any transport: a gRPC service makes its
/// status of it, a GraphQL resolver its `extensions`, a WebSocket its error frame.
///
/// It looks into `poem::Error`, `io::Error`, `Box<dyn Error>` and, handed over as `error.as_ref()`, `anyhow::Error`.
///
/// ```
/// use resilience::{describe, deadline::DeadlineExceeded};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("no report")]
/// struct NoReport(#[source] DeadlineExceeded);
///
/// let refusal = describe(&NoReport(DeadlineExceeded)).expect("a refusal is its cause");
/// assert_eq!((refusal.code(), refusal.http_status().as_u16()), ("timeout", 504));
/// assert_eq!(refusal.retry_after(), None);
///
/// assert!(describe(&std::fmt::Error).is_none());
/// ```
#[must_use]
pub fn describe(error: &(dyn StdError + 'static)) -> Option<Error> {
    let mut next = Some(error);
    for _ in 0..DEPTH_MAX {
        let error = next?;
        if let Some(refusal) = refusal(error) {
            return Some(refusal);
        }
        // An io error's `source` is the source of what it holds, which would be passed over.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

/// What this very error is, if it is one of this crate's.
fn refusal(error: &(dyn StdError + 'static)) -> Option<Error> {
    fn known<E: StdError + Clone + Into<Error> + 'static>(error: &(dyn StdError + 'static)) -> Option<Error> {
        error.downcast_ref::<E>().cloned().map(Into::into)
    }
    known::<Error>(error)
        .or_else(|| known::<CircuitOpen>(error))
        .or_else(|| known::<DeadlineExceeded>(error))
        .or_else(|| known::<Overloaded>(error))
        .or_else(|| known::<RateLimited>(error))
        .or_else(|| known::<PermitLimitExceeded>(error))
        .or_else(|| known::<Cancelled>(error))
}

#[cfg(test)]
mod tests {
    use poem::http::StatusCode;

    use super::*;
    use crate::breaker::{BreakerConfig, CallError, CircuitBreaker};

    #[derive(Debug, thiserror::Error)]
    #[error("around it")]
    struct Around(#[source] Box<dyn StdError + Send + Sync>);

    fn around(error: impl StdError + Send + Sync + 'static) -> Around {
        Around(Box::new(error))
    }

    fn code(error: &(dyn StdError + 'static)) -> Option<String> {
        describe(error).map(|refusal| refusal.code().to_owned())
    }

    #[test]
    fn a_refusal_is_found_however_deep() {
        let timeout = Some("timeout".to_owned());
        assert_eq!(code(&DeadlineExceeded), timeout);
        assert_eq!(code(&around(around(DeadlineExceeded))), timeout);
        assert_eq!(code(&io::Error::other(DeadlineExceeded)), timeout);
        assert_eq!(
            code(&around(io::Error::other(around(Cancelled::DeadlineExceeded)))),
            timeout
        );
        assert_eq!(code(&poem::Error::from(DeadlineExceeded)), timeout);
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(around(DeadlineExceeded));
        assert_eq!(code(boxed.as_ref()), timeout);
        assert_eq!(code(&poem::Error::from((StatusCode::BAD_GATEWAY, boxed))), timeout);
    }

    #[test]
    fn other_errors_are_none() {
        assert_eq!(code(&around(io::Error::from(io::ErrorKind::NotFound))), None);
        assert_eq!(code(&poem::Error::from_status(StatusCode::GATEWAY_TIMEOUT)), None);
    }

    #[tokio::test]
    async fn a_breakers_refusal_is_found_in_its_calls_error() {
        let breaker = CircuitBreaker::new("x", BreakerConfig::default().with_failures_in_a_row(1)).unwrap();
        let fails = || async { Err::<(), _>(io::Error::from(io::ErrorKind::TimedOut)) };
        let failed = breaker.call(fails()).await.unwrap_err();
        assert_eq!(code(&failed), None, "the call's own error is none of ours");
        let refused = breaker.call(fails()).await.unwrap_err();
        assert!(matches!(refused, CallError::Open(_)));
        let refusal = describe(&around(refused)).expect("it is there");
        assert_eq!(refusal.code(), "circuit_open");
        assert!(refusal.retry_after().is_some());
    }

    #[test]
    fn a_chain_without_an_end_is_left() {
        #[derive(Debug)]
        struct Circle;
        impl std::fmt::Display for Circle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("round")
            }
        }
        impl StdError for Circle {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&Circle)
            }
        }
        assert_eq!(code(&Circle), None);
    }
}
