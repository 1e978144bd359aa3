//! The attempts that a request has begun, and what becomes of them.

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

/// Attempts of a request that has not reached its handler. They are given back however it ends: refused or dropped.
#[derive(Default)]
pub(crate) struct Pending(Option<Box<Entered>>);

/// Attempts of a request whose handler runs. They stay counted unless they are settled: whoever hangs up on a handler,
/// or makes it too slow or panic, may have had an answer by then.
pub(crate) struct Entered {
    runtime: Arc<Runtime>,
    lockouts: Arc<Lockouts>,
    /// An attempt may be given back where no runtime is entered: in the drop of a future. `None` outside of any: then
    /// attempts stay counted.
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
        Self(Some(Box::new(Entered {
            runtime,
            lockouts,
            tokio: Handle::try_current().ok(),
            begun: Vec::new(),
        })))
    }

    /// Takes attempts on. Those that the store counts belong here before it is asked.
    pub(super) fn begin(&mut self, attempts: impl IntoIterator<Item = Counted>) {
        if let Some(pending) = &mut self.0 {
            pending.begun.extend(attempts);
        }
    }

    /// Forgets attempts that were not counted.
    pub(super) fn forget(&mut self, attempts: &[Counted]) {
        if let Some(pending) = &mut self.0 {
            pending
                .begun
                .retain(|begun| attempts.iter().all(|attempt| attempt.id != begun.id));
        }
    }

    /// Leaves all attempts counted.
    pub(super) fn keep(&mut self) {
        self.0 = None;
    }

    /// The handler is about to run.
    pub(crate) fn enter(mut self) -> Option<Box<Entered>> {
        self.0.take()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            // Not waited for: whatever refuses the request has decided.
            drop(pending.spawn(LoginOutcome::NotAnAttempt));
        }
    }
}

impl Entered {
    /// Settles the attempts by what the handler has answered.
    ///
    /// Waits for it, within the lockouts' deadline, so that whoever has logged in finds the tally cleared.
    ///
    /// # Cancel safety
    ///
    /// Safe: the attempts are settled all the same.
    pub(crate) async fn settle(self: Box<Self>, outcome: LoginOutcome) {
        if let Some(settling) = self.spawn(outcome) {
            // An error is a panic, which has been reported, or the end of the runtime.
            let _ended = settling.await;
        }
    }

    fn spawn(mut self: Box<Self>, outcome: LoginOutcome) -> Option<JoinHandle<()>> {
        let mut settled = Vec::with_capacity(self.begun.len());
        for counted in std::mem::take(&mut self.begun) {
            let key = self.lockouts.all[counted.lockout].spec.key;
            settled.extend(settlement(outcome, key).map(|settle| (counted, settle)));
        }
        let tokio = self.tokio.clone().filter(|_| !settled.is_empty())?;
        Some(tokio.clone().spawn(async move {
            if !self.carry_out(&settled).await {
                tokio.spawn(self.give_back_later(settled));
            }
        }))
    }

    /// What the store was not there to settle is given back once it is there again: nobody is to be locked out for having
    /// logged in while it was away. Not cleared, since others may have tried meanwhile.
    async fn give_back_later(self: Box<Self>, settled: Vec<(Counted, Settle)>) {
        let Ok(_permit) = self.runtime.unsettled.try_acquire() else {
            return;
        };
        let in_store = settled.into_iter().filter(|(counted, _)| counted.by == Counter::Store);
        let settled: Vec<_> = in_store.map(|(counted, _)| (counted, Settle::GiveBack)).collect();
        for wait in RETRIES {
            sleep(wait).await;
            if self.carry_out(&settled).await {
                return;
            }
        }
    }

    /// Whether the store has settled what it has counted.
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
        match answer.0 {
            Ok(()) => true,
            Err(outage) => {
                lockouts
                    .complaints
                    .about(&"lockout: attempts stay counted for now", &outage);
                false
            }
        }
    }
}

impl Counted {
    /// An attempt that the store is to count.
    pub(super) fn new(lockout: usize, subject: ClientKey) -> Self {
        Self {
            lockout,
            subject,
            id: fastrand::u64(..),
            by: Counter::Store,
        }
    }

    /// Another attempt of the same subject, for somebody else to count.
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
        }
    }
}

/// What becomes of an attempt; `None` if it stays counted.
fn settlement(outcome: LoginOutcome, key: LockoutKey) -> Option<Settle> {
    match (outcome, key) {
        (LoginOutcome::Failed, _) => None,
        // One user's success says nothing about the others whom somebody tries from the same address.
        // A key of the user's own may be an address in all but name.
        (LoginOutcome::NotAnAttempt, _) | (LoginOutcome::Succeeded, LockoutKey::Ip | LockoutKey::Custom(_)) => {
            Some(Settle::GiveBack)
        }
        (LoginOutcome::Succeeded, LockoutKey::Account(_) | LockoutKey::User) => Some(Settle::Clear),
    }
}
