//! The attempts that a request has begun, and how they are settled.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use super::{bound::Lockouts, outcome::LoginOutcome};
use crate::{
    client::ClientKey,
    policy::LockoutKey,
    question::{Asked, Question},
    runtime::Runtime,
    store::{Attempt, Settle, Settlement},
    store_breaker::Operation,
};

/// When settling is tried again: over a minute, which is longer than most outages.
const RETRIES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(32),
];

/// Attempts of a request that has not reached its handler. They are given back however it ends, refused or dropped: nothing
/// was verified.
pub(crate) struct Pending(Option<Box<Batch>>);

/// Attempts of a request whose handler runs. Dropped without being settled, they have failed: a client that hangs up on the
/// handler, or makes it too slow or panic, may have had an answer by then.
pub(crate) struct Entered(Option<Box<Batch>>);

/// The attempts of one request.
struct Batch {
    runtime: Arc<Runtime>,
    lockouts: Arc<Lockouts>,
    /// An attempt may be settled where no runtime is entered: in the drop of a future. `None` outside of any: attempts
    /// then fail when their lease ends.
    tokio: Option<Handle>,
    begun: Vec<Counted>,
}

/// One attempt, counted or on its way to be.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    /// Place among the handler's lockouts.
    pub(super) lockout: usize,
    pub(super) subject: ClientKey,
    pub(super) id: u64,
    /// Where it comes from: see [`Attempt::origin`].
    pub(super) origin: u64,
    pub(super) by: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Or perhaps not, if its answer has not come: to settle an attempt that was never counted changes nothing.
    Store,
    /// For a lockout that fails local.
    Process,
}

impl Pending {
    pub(super) fn new(runtime: Arc<Runtime>, lockouts: Arc<Lockouts>) -> Self {
        Self(Some(Box::new(Batch {
            runtime,
            lockouts,
            tokio: Handle::try_current().ok(),
            begun: Vec::new(),
        })))
    }

    /// Takes attempts on. Those that the store counts belong here before it is asked.
    pub(super) fn begin(&mut self, attempts: impl IntoIterator<Item = Counted>) {
        if let Some(batch) = &mut self.0 {
            batch.begun.extend(attempts);
        }
    }

    /// Forgets attempts that were not counted.
    pub(super) fn forget(&mut self, attempts: &[Counted]) {
        if let Some(batch) = &mut self.0 {
            batch
                .begun
                .retain(|begun| attempts.iter().all(|attempt| attempt.id != begun.id));
        }
    }

    /// The handler is about to run.
    pub(crate) fn enter(mut self) -> Entered {
        Entered(self.0.take())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            // Not waited for: the request is decided without it.
            drop(batch.settle(LoginOutcome::NotAnAttempt));
        }
    }
}

impl Entered {
    /// Settles the attempts by the handler's answer.
    ///
    /// Waits for it, within the lockouts' deadline, so that a client finds its tally cleared or locked at its next request.
    ///
    /// # Cancel safety
    ///
    /// Safe: the attempts are settled all the same.
    pub(crate) async fn settle(mut self, outcome: LoginOutcome) {
        if let Some(settling) = self.0.take().and_then(|batch| batch.settle(outcome)) {
            // An error is a panic, which has been reported, or the end of the runtime.
            let _ended = settling.await;
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            drop(batch.settle(LoginOutcome::Failed));
        }
    }
}

impl Batch {
    /// Settles all attempts in a task of their own.
    fn settle(mut self: Box<Self>, outcome: LoginOutcome) -> Option<JoinHandle<()>> {
        let begun = std::mem::take(&mut self.begun).into_iter();
        let settled: Vec<_> = begun
            .map(|counted| {
                let settle = settlement(outcome, self.lockouts.all[counted.lockout].spec.key);
                (counted, settle)
            })
            .collect();
        let tokio = self.tokio.clone().filter(|_| !settled.is_empty())?;
        Some(tokio.clone().spawn(async move {
            if !self.carry_out(&settled).await {
                tokio.spawn(self.settle_later(settled));
            }
        }))
    }

    /// Settles after an outage. A success gives its own attempt back and clears nothing, since others may have tried
    /// meanwhile. Attempts that the store does not hear of again fail when their lease ends.
    async fn settle_later(self: Box<Self>, settled: Vec<(Counted, Settle)>) {
        let Ok(_permit) = self.runtime.unsettled.try_acquire() else {
            return;
        };
        let in_store = settled.into_iter().filter(|(counted, _)| counted.by == Counter::Store);
        let later = |settle| match settle {
            Settle::Clear => Settle::GiveBack,
            settle => settle,
        };
        let settled: Vec<_> = in_store.map(|(counted, settle)| (counted, later(settle))).collect();
        for wait in RETRIES {
            sleep(wait).await;
            if self.carry_out(&settled).await {
                return;
            }
        }
    }

    /// Whether the store has settled the attempts that it has counted.
    async fn carry_out(&self, settled: &[(Counted, Settle)]) -> bool {
        let by = |counter| -> Vec<Settlement<'_>> {
            let settled = settled.iter().filter(|(counted, _)| counted.by == counter);
            settled
                .map(|(counted, settle)| Settlement {
                    attempt: counted.attempt(&self.lockouts),
                    settle: *settle,
                })
                .collect()
        };
        self.runtime.insurance.settle_attempts_now(&by(Counter::Process));
        let settlements = by(Counter::Store);
        if settlements.is_empty() {
            return true;
        }
        let lockouts = &*self.lockouts;
        let asked = Asked::now();
        let question = Question::of_store(&lockouts.breaker, asked, lockouts.settle_deadline, |deadline| {
            self.runtime.store.settle_attempts(&settlements, deadline)
        });
        // After an attempt that could not be counted there is nothing to write. A full store answers that, and would end the
        // row of failures after each attempt.
        let answer = question.proving_nothing().ask(asked).await;
        self.runtime.observer.note(Operation::Lockout, &answer);
        for Settlement { attempt, .. } in &settlements {
            self.runtime.locked.forget(&attempt.lockout.id, attempt.subject);
        }
        match answer.0 {
            Ok(()) => true,
            Err(outage) => {
                lockouts
                    .complaints
                    .about(&"lockout: attempts are not settled for now", &outage);
                false
            }
        }
    }
}

impl Counted {
    /// An attempt that the store is to count.
    pub(super) fn new(lockout: usize, subject: ClientKey, origin: u64) -> Self {
        Self {
            lockout,
            subject,
            id: fastrand::u64(..),
            origin,
            by: Counter::Store,
        }
    }

    /// Another attempt of the same subject, for another counter.
    pub(super) fn counted_by(self, by: Counter) -> Self {
        Self {
            id: fastrand::u64(..),
            by,
            ..self
        }
    }

    pub(super) fn attempt<'a>(&'a self, lockouts: &'a Lockouts) -> Attempt<'a> {
        Attempt {
            lockout: &lockouts.all[self.lockout].lockout,
            subject: self.subject.as_str(),
            id: self.id,
            origin: self.origin,
        }
    }
}

fn settlement(outcome: LoginOutcome, key: LockoutKey) -> Settle {
    match (outcome, key) {
        (LoginOutcome::Failed, _) => Settle::Fail,
        // One user's success proves nothing about the others who are tried from the same address.
        // A key of the user's own may be an address in all but name.
        (LoginOutcome::NotAnAttempt, _) | (LoginOutcome::Succeeded, LockoutKey::Ip | LockoutKey::Custom(_)) => {
            Settle::GiveBack
        }
        (LoginOutcome::Succeeded, LockoutKey::Account(_) | LockoutKey::User) => Settle::Clear,
    }
}
