//! A budget of time that everything below a handler inherits.
//!
//! `deadline = "2s"` in the attribute opens a scope around the handler. Whatever runs inside it, at any depth of the same
//! task, sees what is left of the budget; a scope inside a scope can only shorten it. Store operations of guards and
//! outbound pipelines inside a scope end with it. A task of its own inherits nothing by itself: start it with [`spawn`].
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
//!
//! # Work that cannot be dropped
//!
//! A scope ends by dropping its future, which works at its next `await`. Code that blocks its thread (a loop without an
//! `await`, blocking IO) runs on past its deadline, and so does `spawn_blocking`, whose thread nobody can stop. Such code
//! asks [`is_cancelled`] from time to time. Where a handler ran on for more than 100 ms all the same, the metric
//! `resilience_deadline_overruns_total` says so.

mod budget;
mod header;

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};

use self::budget::{Budget, EndOnDrop};
pub(crate) use self::header::DeadlineHeader;
pub use self::header::header_value;

tokio::task_local! {
    static CURRENT: Arc<Budget>;
}

/// Runs `future` within `budget`, or within what is left of the enclosing scope's if that is less.
///
/// # Errors
///
/// [`DeadlineExceeded`] when the budget ran out; `future` is dropped then. A future that is ready when it is polled for the
/// last time is in time, and it is polled once even where the budget is spent from the start.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself. What was started with [`spawn`] inside ends when the scope is dropped.
pub async fn scope<F: Future>(budget: Duration, future: F) -> Result<F::Output, DeadlineExceeded> {
    let parent = CURRENT.try_with(Arc::clone).ok();
    run(Arc::new(Budget::new(budget, parent)), future).await
}

/// Runs `future` in the scope of `budget`, which ends with it.
async fn run<F: Future>(budget: Arc<Budget>, future: F) -> Result<F::Output, DeadlineExceeded> {
    let at = budget.at();
    let ends = EndOnDrop::new(Arc::clone(&budget));
    let outcome = CURRENT.scope(budget, timeout_at(at, future)).await;
    if outcome.is_ok() {
        ends.forget();
    }
    outcome.map_err(|_elapsed| DeadlineExceeded)
}

/// When the enclosing scope ends; `None` outside of any.
#[must_use]
pub fn current() -> Option<Instant> {
    CURRENT.try_with(|budget| budget.at()).ok()
}

/// What is left of the enclosing scope's budget (zero once it is spent); `None` outside of any.
#[must_use]
pub fn remaining() -> Option<Duration> {
    current().map(|at| at.saturating_duration_since(Instant::now()))
}

/// Whether the enclosing scope's budget is spent, or the scope was dropped before it was done; `false` outside of any.
#[must_use]
pub fn is_cancelled() -> bool {
    CURRENT
        .try_with(|budget| budget.is_cut_short() || Instant::now() >= budget.at())
        .unwrap_or(false)
}

/// Completes when [`is_cancelled`] becomes true: for work that must tidy up before it goes, and for tasks that were not
/// started with [`spawn`]. Outside of any scope it never does.
///
/// It watches the scope in which it was called, wherever it is polled.
///
/// ```
/// use std::time::Duration;
/// use resilience::deadline;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let (tidied, was_tidied) = tokio::sync::oneshot::channel();
/// let slow = deadline::scope(Duration::from_millis(20), async {
///     let over = deadline::cancelled();
///     tokio::spawn(async move {
///         over.await;
///         // Roll back, close, tell somebody.
/// #       tidied.send(()).unwrap();
///     });
///     std::future::pending::<()>().await
/// });
/// assert!(slow.await.is_err());
/// # was_tidied.await.unwrap();
/// # }
/// ```
///
/// # Cancel safety
///
/// Safe.
pub fn cancelled() -> impl Future<Output = ()> + Send + 'static {
    let budget = CURRENT.try_with(Arc::clone).ok();
    async move {
        match budget {
            None => std::future::pending().await,
            Some(budget) => {
                over(&budget).await;
            }
        }
    }
}

/// Starts a task that inherits the enclosing scope: it sees the same deadline and ends with it, and it ends when the scope
/// is dropped before it was done (its client has gone, its time is up). A scope that completes leaves the task its time.
///
/// Outside of any scope the task is an ordinary one.
///
/// ```
/// use std::time::Duration;
/// use resilience::deadline;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let left = deadline::scope(Duration::from_secs(2), async {
///     deadline::spawn(async { deadline::remaining() }).await
/// });
/// assert_eq!(left.await???, Some(Duration::from_secs(2)));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The task's result is [`Cancelled`] if it was ended so.
///
/// # Panics
///
/// Outside of a tokio runtime.
pub fn spawn<F>(future: F) -> JoinHandle<Result<F::Output, Cancelled>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(inherit(future))
}

/// What [`spawn`] runs, for those who start tasks by other means (a `JoinSet`, another runtime): takes the enclosing scope
/// where it is called, and to wherever it is polled.
///
/// # Errors
///
/// [`Cancelled`] if the scope ended first.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Cancelled>> {
    let budget = CURRENT.try_with(Arc::clone).ok();
    async move {
        let Some(budget) = budget else {
            return Ok(future.await);
        };
        let inherited = Arc::clone(&budget);
        tokio::select! {
            biased;
            cancelled = over(&budget) => Err(cancelled),
            output = CURRENT.scope(inherited, future) => Ok(output),
        }
    }
}

/// Completes when this budget is over, and says why.
async fn over(budget: &Arc<Budget>) -> Cancelled {
    tokio::select! {
        biased;
        // A scope whose time is up is dropped unfinished at that moment, which is no other reason.
        () = budget.cut_short() => match Instant::now() < budget.at() {
            true => Cancelled::Abandoned,
            false => Cancelled::DeadlineExceeded,
        },
        () = sleep_until(budget.at()) => Cancelled::DeadlineExceeded,
    }
}

/// The budget ran out before the work was done. As a poem error it answers 504 `timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline was exceeded")]
pub struct DeadlineExceeded;

/// Why a task that inherited a scope was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cancelled {
    /// The budget ran out.
    #[error("the deadline was exceeded")]
    DeadlineExceeded,
    /// The scope was dropped before it was done: nobody waits for the result any more.
    #[error("the work was abandoned")]
    Abandoned,
}

#[cfg(test)]
#[expect(
    clippy::async_yields_async,
    reason = "a scope may give a task back that goes on without it"
)]
mod tests;
