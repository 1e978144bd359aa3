//! An attempt that has begun, and how it is settled.

use std::time::Duration;

use tokio::runtime::Handle;

use super::Lockout;
use crate::{
    client::ClientKey,
    error::Error,
    policy::OnOutage,
    question::{Asked, Outage, Question},
    store::{self, Refused, Settle, Settlement, StoreError},
    store_breaker::Operation,
};

/// An attempt that has begun, and is under way until it is settled. Dropped, it has failed, as by [`fail`](Self::fail):
/// otherwise hanging up early would buy unlimited guesses.
///
/// An attempt that is not settled within 30 s, because its process has crashed or the store was not there, counts as failed
/// from then on.
#[derive(Debug)]
#[must_use = "dropped, the attempt has failed"]
pub struct Attempt {
    lockout: Lockout,
    subject: ClientKey,
    id: u64,
    origin: u64,
    in_store: Counted,
    /// Whether this process has counted it: the lockout fails local.
    in_process: bool,
    /// How it is settled when it is dropped; `None` once it is settled.
    on_drop: Option<Settle>,
    /// It may be dropped where no runtime is entered.
    tokio: Option<Handle>,
}

/// Whether the store has counted an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
    /// It was asked to, and has not answered. The attempt is settled all the same: settling one that was never counted
    /// changes nothing.
    Perhaps,
}

impl Attempt {
    /// One that the store is about to be asked about. Dropped before it has begun, it is given back.
    pub(super) fn new(lockout: &Lockout, subject: &ClientKey) -> Self {
        Self {
            lockout: lockout.clone(),
            subject: subject.clone(),
            id: fastrand::u64(..),
            origin: subject.origin(),
            in_store: Counted::Perhaps,
            in_process: false,
            on_drop: Some(Settle::GiveBack),
            tokio: Handle::try_current().ok(),
        }
    }

    /// The attempt has proved the password: removes it from the tally, with all failures of the same origin. A lock ends if
    /// fewer failures than the limit are left. The history of locks is forgotten if all of them came from this origin.
    ///
    /// The origin is the exact text that [`ClientKey::account`] was made of, and for other keys the key itself. So an
    /// attempt at `Ada` clears no failures at `ada`, which share its tally: your code may take them for two accounts.
    ///
    /// For a tally that many share, an address's, call [`abandon`](Self::abandon) instead: one user's success proves nothing
    /// about the others.
    ///
    /// # Errors
    ///
    /// When the store has not done it; the attempt then counts as failed 30 s after it began.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, the attempt may count as failed.
    pub async fn succeed(self) -> Result<(), StoreError> {
        self.settle(Settle::Clear).await
    }

    /// The attempt has failed. If that reaches the limit, the lock begins now.
    ///
    /// # Errors
    ///
    /// As for [`succeed`](Self::succeed).
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped, the attempt has failed all the same.
    pub async fn fail(self) -> Result<(), StoreError> {
        self.settle(Settle::Fail).await
    }

    /// Nothing was verified: removes the attempt from the tally, and lifts a lock that came of it.
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

    /// The store's answer.
    pub(super) fn decided(mut self, refused: Option<Refused>) -> Result<Self, BeginError> {
        match refused {
            None => {
                self.in_store = Counted::Yes;
                Ok(self.begun())
            }
            Some(refused) => {
                self.in_store = Counted::No;
                Err(refused.into())
            }
        }
    }

    /// The lockout's answer in an outage.
    pub(super) fn fall_back(mut self, outage: &Outage) -> Result<Self, BeginError> {
        // Any other outage may have come after the count.
        if outage.is_unasked() {
            self.in_store = Counted::No;
        }
        if outage.is_shed() {
            return Err(BeginError::Overloaded);
        }
        let shared = &self.lockout.shared;
        match shared.on_outage {
            OnOutage::FailOpen => Ok(self.begun()),
            // Dropped, the attempt is given back: a slow store that counts it too late to answer for must not lock out a
            // client that was never let in.
            OnOutage::FailClosed => Err(BeginError::Unavailable {
                retry_after: shared.runtime.settings.retry_after,
            }),
            OnOutage::FailLocal => {
                let begun = shared.runtime.insurance.begin_attempts_now(&[self.in_store()])[0];
                if let Some(refused) = begun.refused {
                    return Err(refused.into());
                }
                self.in_process = true;
                Ok(self.begun())
            }
        }
    }

    pub(super) fn in_store(&self) -> store::Attempt<'_> {
        store::Attempt {
            lockout: &self.lockout.shared.lockout,
            subject: self.subject.as_str(),
            id: self.id,
            origin: self.origin,
        }
    }

    /// From now on it has failed if it is dropped.
    fn begun(mut self) -> Self {
        self.on_drop = Some(Settle::Fail);
        self
    }

    async fn settle(mut self, settle: Settle) -> Result<(), StoreError> {
        self.settle_in_process(settle);
        let answer = self.settle_in_store(settle).await;
        // Not before: dropped at the await, it has failed. A failure that comes after a success changes nothing.
        self.on_drop = None;
        answer
    }

    fn settle_in_process(&mut self, settle: Settle) {
        if std::mem::take(&mut self.in_process) {
            let attempt = self.in_store();
            let insurance = &self.lockout.shared.runtime.insurance;
            insurance.settle_attempts_now(&[Settlement { attempt, settle }]);
        }
    }

    async fn settle_in_store(&self, settle: Settle) -> Result<(), StoreError> {
        if self.in_store == Counted::No {
            return Ok(());
        }
        let shared = &self.lockout.shared;
        let attempt = self.in_store();
        let settled = [Settlement { attempt, settle }];
        let asked = Asked::now();
        let question = Question::of_store(&shared.breaker, asked, shared.deadline, |deadline| {
            shared.runtime.store.settle_attempts(&settled, deadline)
        });
        let answer = question.ask(asked).await;
        shared.runtime.observer.note(Operation::Lockout, &answer);
        shared.runtime.locked.forget(&attempt.lockout.id, attempt.subject);
        match answer.0 {
            Err(_) if self.in_store == Counted::Perhaps => Ok(()),
            answer => answer.map_err(StoreError::from),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(settle) = self.on_drop.take() else { return };
        self.settle_in_process(settle);
        if let Some(tokio) = self.tokio.take().filter(|_| self.in_store != Counted::No) {
            let attempt = Self {
                lockout: self.lockout.clone(),
                subject: self.subject.clone(),
                tokio: None,
                ..*self
            };
            // An error leaves it to the end of the lease.
            tokio.spawn(async move { attempt.settle_in_store(settle).await });
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
        /// How long the lock lasts; never zero.
        retry_after: Duration,
    },
    /// Attempts of the subject that are still under way could reach the limit: 429 `attempts_under_way`.
    #[error("other attempts are under way: try again in {retry_after:?}")]
    UnderWay {
        /// When to try again: from 1 ms to 1 s.
        retry_after: Duration,
    },
    /// The store cannot tell, and the lockout fails closed: 503 `lockout_unavailable`.
    #[error("the attempt cannot be counted at the moment")]
    Unavailable {
        /// When to try again: the builder's `retry_after`.
        retry_after: Duration,
    },
    /// Too many operations wait for the store in this process: 503 `overloaded`, whatever the lockout does in an outage.
    #[error("too many operations wait for the store in this process")]
    Overloaded,
}

impl From<Refused> for BeginError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Locked { retry_after } => Self::Locked { retry_after },
            Refused::UnderWay { retry_after } => Self::UnderWay { retry_after },
        }
    }
}

impl From<BeginError> for Error {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Locked { retry_after } => Self::locked_out(retry_after),
            BeginError::UnderWay { retry_after } => Self::attempts_under_way(retry_after),
            BeginError::Unavailable { retry_after } => Self::lockout_unavailable().with_retry_after(retry_after),
            BeginError::Overloaded => Self::too_busy(),
        }
    }
}
