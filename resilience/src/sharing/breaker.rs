use std::{future::Future, sync::Arc};

use super::{Core, Events, Status};
use crate::{
    breaker::{CallError, CircuitBreaker, Outcome, State},
    store::board::{Circuit, Entry},
};

/// A dependency's breaker, as [`Resilience::breaker`](crate::Resilience::breaker) finds it by name. Clones are handles on the
/// same one.
///
/// With [`share_breakers`](crate::Builder::share_breakers) it knows what the other instances know; without, it is this
/// instance's own, and everything here works all the same. It is the breaker that
/// [`#[outbound(breaker = "…")]`](macro@crate::outbound) of that name uses, and [`circuit`](Self::circuit) hands it to a
/// [`Pipeline`](crate::pipeline::Pipeline).
///
/// ```
/// use resilience::{Resilience, breaker::CallError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn charge() -> Result<u32, std::io::Error> { Ok(42) }
/// let resilience = Resilience::builder().memory().share_breakers("payments-team").build()?;
/// let payments = resilience.breaker("payments");
///
/// match payments.protect(charge()).await {
///     Ok(charged) => assert_eq!(charged, 42),
///     Err(CallError::Open(_)) => println!("not now: {:?}", payments.status().await),
///     Err(CallError::Inner(error)) => return Err(error.into()),
/// }
/// assert!(payments.is_closed().await);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedBreaker {
    breaker: CircuitBreaker,
    core: Option<Arc<Core>>,
}

impl SharedBreaker {
    pub(crate) const fn new(breaker: CircuitBreaker, core: Option<Arc<Core>>) -> Self {
        Self { breaker, core }
    }

    /// The breaker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.breaker.name()
    }

    /// The circuit that calls go through, in this process.
    #[must_use]
    pub const fn circuit(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// Runs `future` if the circuit lets it in, and counts `Ok` as a success and `Err` as a failure.
    ///
    /// Looks at this process's memory only: it never waits for the store, and no failure of the store is seen here. No lock
    /// is held while `future` runs.
    ///
    /// # Errors
    ///
    /// [`CallError::Open`] if the circuit refused, and `future` was not polled; [`CallError::Inner`] if it failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call drops `future` and counts as [`Outcome::Neutral`]; a probe's place goes to the next call.
    pub async fn protect<T, E>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T, CallError<E>> {
        self.breaker.call(future).await
    }

    /// [`protect`](Self::protect) for results whose outcome is not simply `Ok` or `Err`.
    ///
    /// # Errors
    ///
    /// As [`protect`](Self::protect), whatever the outcome.
    ///
    /// # Cancel safety
    ///
    /// As [`protect`](Self::protect).
    pub async fn protect_with<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
        classify: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        self.breaker.call_with(future, classify).await
    }

    /// Whether calls are refused; `false` while a probe may go, and if nothing is known.
    ///
    /// Answers at once from what is known, which is looked up again in the background if it is older than 3 seconds (30 after
    /// the start). While nothing is known at all it waits for up to 500 ms, and the look-up goes on after that.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing.
    pub async fn is_open(&self) -> bool {
        self.checked().await == State::Open && !self.breaker.is_available()
    }

    /// Whether calls pass; `true` if nothing is known. Waits as [`is_open`](Self::is_open).
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing.
    pub async fn is_closed(&self) -> bool {
        self.checked().await == State::Closed
    }

    /// How it stands, as calls find it here, and what the store says of it. `None` if the store has not answered yet, and
    /// does not within the time that [`is_open`](Self::is_open) waits; later, what it said last.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing.
    pub async fn status(&self) -> Option<Status> {
        let unknown = Entry::unknown(self.name());
        let Some(core) = &self.core else {
            return Some(self.here(&unknown));
        };
        let known = core.check().await?;
        Some(self.here(known.entries.get(self.name()).unwrap_or(&unknown)))
    }

    /// What happens to it from now on.
    pub fn events(&self) -> Events {
        Events::of(&self.breaker, self.core.as_deref())
    }

    async fn checked(&self) -> State {
        if let Some(core) = &self.core {
            core.check().await;
        }
        self.breaker.state()
    }

    /// What an entry says, where this process has nothing newer to say.
    fn here(&self, entry: &Entry) -> Status {
        let state = self.breaker.state();
        let mut status = Status::of(entry);
        status.state = state;
        let is_of_all = matches!(entry.circuit, Circuit::Open(_));
        if entry.hold.is_none() && is_of_all == (state == State::Closed) {
            // Opened here and not by all, or closed here a moment ago.
            let news = self.breaker.news();
            status.since = None;
            status.reason = news.cause.map(|cause| cause.to_string());
            status.by = self.core.as_ref().map(|core| core.instance().to_owned());
            status.probe_in = self.breaker.open_remaining();
        }
        status
    }
}
