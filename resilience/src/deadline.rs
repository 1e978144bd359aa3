//! A budget of time that everything below a handler inherits.
//!
//! `deadline = "2s"` in the attribute opens a scope around the handler. Whatever runs inside it, at any depth of the same
//! task, sees what is left of the budget; a scope inside a scope can only shorten it. Store operations of guards inside a
//! scope end with it.
//!
//! ```
//! use std::time::Duration;
//! use resilience::deadline;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), deadline::DeadlineExceeded> {
//! let answer = deadline::scope(Duration::from_secs(2), async {
//!     let left = deadline::remaining().expect("inside a scope");
//!     assert!(left <= Duration::from_secs(2));
//!     // A longer budget inside does not extend the outer one.
//!     deadline::scope(Duration::from_secs(60), async { deadline::remaining() }).await
//! })
//! .await??;
//! assert!(answer.expect("inside a scope") <= Duration::from_secs(2));
//!
//! let late = deadline::scope(Duration::from_millis(5), std::future::pending::<()>()).await;
//! assert_eq!(late, Err(deadline::DeadlineExceeded));
//! # Ok(())
//! # }
//! ```

use std::{fmt, future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};

tokio::task_local! {
    static CURRENT: Instant;
}

/// Runs `future` within `budget`, or within what is left of the enclosing scope's if that is less.
///
/// # Errors
///
/// [`DeadlineExceeded`] when the budget ran out; `future` is dropped then.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself: the scope holds nothing but the future.
pub async fn scope<F: Future>(budget: Duration, future: F) -> Result<F::Output, DeadlineExceeded> {
    // A budget beyond the clock's range is no limit in practice.
    let own = Instant::now()
        .checked_add(budget)
        .unwrap_or_else(|| Instant::now() + Duration::from_secs(60 * 60 * 24 * 365));
    let at = current().map_or(own, |outer| outer.min(own));
    CURRENT
        .scope(at, timeout_at(at, future))
        .await
        .map_err(|_elapsed| DeadlineExceeded)
}

/// When the enclosing scope ends; `None` outside of any.
#[must_use]
pub fn current() -> Option<Instant> {
    CURRENT.try_with(|at| *at).ok()
}

/// What is left of the enclosing scope's budget (zero once it is spent); `None` outside of any.
#[must_use]
pub fn remaining() -> Option<Duration> {
    current().map(|at| at.saturating_duration_since(Instant::now()))
}

/// The budget ran out before the work was done. As a poem error it answers 504 `timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineExceeded;

impl fmt::Display for DeadlineExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline was exceeded")
    }
}

impl std::error::Error for DeadlineExceeded {}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nested_scopes_only_shorten() {
        assert_eq!(remaining(), None);
        let started = Instant::now();
        let outer = scope(Duration::from_secs(2), async {
            assert_eq!(remaining(), Some(Duration::from_secs(2)));
            let inner = scope(Duration::from_millis(500), pending::<()>()).await;
            assert_eq!(inner, Err(DeadlineExceeded));
            assert_eq!(remaining(), Some(Duration::from_millis(1_500)));
            scope(Duration::MAX, pending::<()>()).await
        })
        .await;
        // Inner and outer scope end at one instant: either may report it.
        assert!(matches!(outer, Err(DeadlineExceeded) | Ok(Err(DeadlineExceeded))));
        assert_eq!(started.elapsed().as_secs(), 2);
        assert_eq!(remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_in_time_passes_through() {
        assert_eq!(scope(Duration::from_millis(1), async { 7 }).await, Ok(7));
    }
}
