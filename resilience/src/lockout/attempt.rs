//! An attempt that has begun, and what becomes of it.

use std::time::Duration;

use tokio::runtime::Handle;

use super::Lockout;
use crate::{
    client::ClientKey,
    error::Error,
    policy::OnOutage,
    question::{Asked, Question},
    store::{self, Settle, Settlement, StoreError},
    store_breaker::Operation,
};

/// An attempt that has begun. Dropped, it stays counted, as by [`fail`](Self::fail): or hanging up early would buy
/// unlimited guesses.
#[derive(Debug)]
#[must_use = "dropped, the attempt stays counted"]
pub struct Attempt {
    pub(super) lockout: Lockout,
    pub(super) subject: ClientKey,
    pub(super) id: u64,
    pub(super) in_store: Counted,
    /// Whether this process has counted it: the lockout fails local.
    pub(super) in_process: bool,
}

/// Whether the store has counted an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Yes,
    No,
    /// It was asked to, and has not said. It is told what becomes of the attempt all the same: to settle one that was
    /// never counted changes nothing.
    Perhaps,
}

impl Attempt {
    /// Whoever it was has proved who they are: forgets the subject's tally, with its lock and its history.
    ///
    /// For a tally that many share, an address's, call [`abandon`](Self::abandon) instead: one user's success says nothing
    /// about the others.
    ///
    /// # Errors
    ///
    /// When the store has not done it; the attempt then stays counted.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, the attempt may stay counted.
    pub async fn succeed(self) -> Result<(), StoreError> {
        self.settle(Settle::Clear).await
    }

    /// The attempt stays counted.
    pub fn fail(self) {}

    /// Nothing was found out: takes the attempt off the tally, and lifts a lock that came of it.
    ///
    /// # Errors
    ///
    /// As for [`succeed`](Self::succeed).
    ///
    /// # Cancel safety
    ///
    /// As for [`succeed`](Self::succeed).
    pub async fn abandon(self) -> Result<(), StoreError> {
        self.settle(Settle::GiveBack).await
    }

    /// Whether the store has counted it: `false` while the lockout fails open or local.
    #[must_use]
    pub fn is_counted_by_the_store(&self) -> bool {
        self.in_store == Counted::Yes
    }

    async fn settle(self, settle: Settle) -> Result<(), StoreError> {
        let shared = &self.lockout.shared;
        let settled = [Settlement {
            attempt: self.in_store(),
            settle,
        }];
        if self.in_process {
            shared.runtime.insurance.settle_attempts_now(&settled);
        }
        if self.in_store == Counted::No {
            return Ok(());
        }
        let asked = Asked::now();
        let question = Question::of_store(&shared.breaker, asked, shared.deadline, |deadline| {
            shared.runtime.store.settle_attempts(&settled, deadline)
        });
        let answer = question.ask(asked).await;
        shared.runtime.observer.note(Operation::Lockout, &answer);
        match answer.0 {
            Err(_) if self.in_store == Counted::Perhaps => Ok(()),
            answer => answer.map_err(StoreError::from),
        }
    }

    pub(super) fn fall_back(mut self) -> Result<Self, BeginError> {
        let shared = &self.lockout.shared;
        let refusal = match shared.on_outage {
            OnOutage::FailOpen => return Ok(self),
            OnOutage::FailClosed => BeginError::Unavailable {
                retry_after: shared.runtime.settings.retry_after,
            },
            OnOutage::FailLocal => {
                let begun = shared.runtime.insurance.begin_attempts_now(&[self.in_store()])[0];
                if begun.allowed {
                    self.in_process = true;
                    return Ok(self);
                }
                let retry_after = begun.retry_after;
                BeginError::Locked { retry_after }
            }
        };
        // A slow store that counts what it is too late to answer for must not lock out who was never let in.
        if self.in_store == Counted::Perhaps
            && let Ok(tokio) = Handle::try_current()
        {
            tokio.spawn(self.abandon());
        }
        Err(refusal)
    }

    pub(super) fn in_store(&self) -> store::Attempt<'_> {
        store::Attempt {
            lockout: &self.lockout.shared.lockout,
            subject: self.subject.as_str(),
            id: self.id,
        }
    }
}

/// Why an attempt may not begin. Converts into an [`Error`] with the answer that the attribute's lockout gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The subject is locked out: 429 `locked_out`.
    #[error("too many attempts: locked out for {retry_after:?}")]
    Locked {
        /// For how long: zero never.
        retry_after: Duration,
    },
    /// The store cannot tell, and the lockout fails closed: 503 `lockout_unavailable`.
    #[error("the attempt cannot be counted at the moment")]
    Unavailable {
        /// When to try again: the builder's `retry_after`.
        retry_after: Duration,
    },
}

impl From<BeginError> for Error {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Locked { retry_after } => Self::locked_out(retry_after),
            BeginError::Unavailable { retry_after } => Self::lockout_unavailable().with_retry_after(retry_after),
        }
    }
}
