//! Letting an account in again.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::{
    client::{ClientKey, InvalidAccount},
    policy::LockoutKey,
    runtime::Resilience,
    store::{Lockout, StoreError, StoreErrorKind},
};

/// How long the store may take for one lockout, connecting included.
const OPERATOR_DEADLINE: Duration = Duration::from_secs(5);

impl Resilience {
    /// Forgets all attempts against `account`, of every origin, in every lockout by account that a handler of this program
    /// has: the account may be tried again at once at this process, and after one second at others. Returns in how many
    /// lockouts there was something to forget. Attempts that this process has counted in an outage are forgotten too,
    /// whatever the store answers.
    ///
    /// The store is asked outside of its breaker, at most 5 s for each lockout. Lockouts that
    /// [`lockout`](Self::lockout) has made are unlocked by themselves.
    ///
    /// # Errors
    ///
    /// When the account is none ([`ClientKey::account`]), or the store does not answer for one of the lockouts: the first
    /// such error, after all have been tried.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has unlocked some of them, or none.
    pub async fn unlock(&self, account: &str) -> Result<usize, UnlockError> {
        let subject = ClientKey::account(account)?;
        let mut unlocked = 0;
        let mut failed = None;
        for lockout in self.account_lockouts().values() {
            // Before the store is asked, which may not answer.
            let here = self.runtime.insurance.unlock_now(lockout, subject.as_str());
            let there = self.unlock_in_store(lockout, &subject).await;
            self.runtime.locked.forget(&lockout.id, subject.as_str());
            match there {
                Ok(there) => unlocked += usize::from(here || there),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(unlocked),
            Some(error) => Err(error.into()),
        }
    }

    /// By id: handlers that share a lockout share its tallies.
    fn account_lockouts(&self) -> BTreeMap<String, Lockout> {
        let mut lockouts = BTreeMap::new();
        self.runtime.each_bound(|bound| {
            for bound in bound.lockouts.iter().flat_map(|lockouts| &lockouts.all) {
                if matches!(bound.spec.key, LockoutKey::Account(_)) {
                    lockouts.insert(bound.lockout.id.clone(), bound.lockout.clone());
                }
            }
        });
        lockouts
    }

    async fn unlock_in_store(&self, lockout: &Lockout, subject: &ClientKey) -> Result<bool, StoreError> {
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        let unlock = self.runtime.store.unlock(lockout, subject.as_str(), deadline);
        timeout_at(deadline, unlock).await.unwrap_or_else(|_| {
            let message = format!("the store has not answered within {OPERATOR_DEADLINE:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, message))
        })
    }
}

/// Why [`Resilience::unlock`] has not unlocked everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// There can be no such account.
    #[error(transparent)]
    Account(#[from] InvalidAccount),
    /// The store has not done it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
