//! The guards: one file each, and the trait for guards of your own.

use std::{error::Error as StdError, fmt, future::Future, pin::Pin, time::Duration};

use poem::Request;

use crate::{error::Error, policy::OnOutage};

pub mod auth;
mod circuit;
pub(crate) mod concurrency;
pub(crate) mod flag;
pub(crate) mod lockout;
pub(crate) mod rate_limit;

pub use self::circuit::CircuitGuard;

/// A boxed future, as [`Guard`] and [`Authenticator`](auth::Authenticator) return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error, for what a guard could not find out.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A guard of your own, named in the attribute as `guard(path::to::GUARD)`.
///
/// Its place in the order: after quotas by address, header and everybody, flags and authentication have passed, before
/// quotas by user. So it sees the verified [`Identity`](crate::Identity), and what it rejects costs no user quota.
/// Several are asked one after another, in the order in which they were written.
///
/// ```
/// use poem::{Request, http::StatusCode};
/// use resilience::{Error, Identity, guard::{BoxError, BoxFuture, Guard, Verdict}};
///
/// #[derive(Debug)]
/// struct StaffOnly;
///
/// impl Guard for StaffOnly {
///     fn name(&self) -> &'static str {
///         "staff_only"
///     }
///
///     fn check<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
///         Box::pin(async move {
///             let staff = Identity::of(request).is_some_and(|user| user.0.ends_with("@example.com"));
///             Ok(match staff {
///                 true => Verdict::Pass,
///                 false => Verdict::Reject(Error::new(StatusCode::FORBIDDEN, "staff_only", "For staff only.")),
///             })
///         })
///     }
/// }
///
/// static STAFF_ONLY: StaffOnly = StaffOnly;
///
/// #[resilience::resilient(auth = "fail_closed", guard(STAFF_ONLY))]
/// #[poem::handler]
/// async fn audit() -> &'static str {
///     "…"
/// }
/// # let _endpoint = poem::get(audit);
/// ```
pub trait Guard: fmt::Debug + Send + Sync + 'static {
    /// Its name in logs, metrics and listings.
    fn name(&self) -> &'static str;

    /// Decides about one request.
    ///
    /// # Errors
    ///
    /// When it cannot decide; [`on_outage`](Self::on_outage) then decides for it.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when [`deadline`](Self::deadline) passes or the client goes away.
    fn check<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>>;

    /// How long it may take before it counts as unable to decide. 100 ms by default.
    fn deadline(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// What happens when it cannot decide. [`GuardOutage::FailClosed`] by default.
    fn on_outage(&self) -> GuardOutage {
        GuardOutage::FailClosed
    }
}

/// What a [`Guard`] says.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The request goes on.
    Pass,
    /// The request ends here, with this answer.
    Reject(Error),
}

/// What happens when a guard of the user's own cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardOutage {
    /// 503 `guard_unavailable`.
    FailClosed,
    /// The request goes on, and the answer says so: `x-guard-fallback: <name>`.
    FailOpen,
}

impl OnOutage {
    /// The word that the attribute uses for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailOpen => "fail_open",
            Self::FailClosed => "fail_closed",
            Self::FailLocal => "fail_local",
        }
    }
}

impl GuardOutage {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailClosed => "fail_closed",
            Self::FailOpen => "fail_open",
        }
    }
}
