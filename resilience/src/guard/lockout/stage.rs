//! One call to the store: lockouts that decide together, or one that observes, and what each does in an outage.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attempts::{Counted, Counter, Pending},
    bound::{BoundLockout, Call, Lockouts},
};
use crate::{
    error::Error,
    observe::Answer,
    policy::{Mode, OnOutage},
    question::{Asked, Outage, Question},
    runtime::Runtime,
    store::{Attempt, Begun, Refused, StoreError, StoreErrorKind},
    store_breaker::Operation,
    trail::{Fallback, Trail},
};

pub(super) struct Stage<'s, 'a> {
    pub(super) runtime: &'s Arc<Runtime>,
    pub(super) lockouts: &'s Arc<Lockouts>,
    pub(super) pending: Pending,
    pub(super) trail: &'s mut Trail<'a>,
}

impl Stage<'_, '_> {
    /// Whether no lock can be remembered.
    pub(super) fn remembers_nothing(&self) -> bool {
        self.runtime.locked.is_idle(Instant::now())
    }

    /// Refuses as the store would, if a lock of one of these calls is remembered.
    pub(super) fn refuse_remembered(&mut self, calls: &[(&Call, Result<Vec<Counted>, Error>)]) -> Result<(), Error> {
        if self.remembers_nothing() {
            return Ok(());
        }
        let now = Instant::now();
        for (call, named) in calls {
            let (Mode::Enforce, Ok(attempts)) = (call.mode, named) else {
                continue;
            };
            let asking: Vec<Attempt<'_>> = attempts.iter().map(|attempt| attempt.attempt(self.lockouts)).collect();
            if let Ok(begun) = self.runtime.locked.recall(&asking, now) {
                self.decide(call, attempts, &begun, Answer::Passed)?;
            }
        }
        Ok(())
    }

    /// Refuses a request whose body names no account for one of these calls.
    pub(super) fn refuse_mistakes(&mut self, calls: &[(&Call, Result<Vec<Counted>, Error>)]) -> Result<(), Error> {
        for (call, named) in calls {
            if let (Mode::Enforce, Err(mistake)) = (call.mode, named) {
                self.of(call).for_each(|lockout| lockout.tally.count(Answer::Rejected));
                return Err(mistake.clone());
            }
        }
        Ok(())
    }

    /// Counts the attempts against the subjects that the request names. A request that names none is refused, and was no
    /// attempt: its handler does not run.
    pub(super) async fn ask_or_refuse(&mut self, call: &Call, named: Result<Vec<Counted>, Error>) -> Result<(), Error> {
        match (named, call.mode) {
            (Ok(attempts), _) => self.ask(call, attempts).await,
            (Err(mistake), Mode::Observe) => {
                self.would_have_refused(call, &mistake);
                Ok(())
            }
            (Err(mistake), Mode::Enforce) => {
                self.of(call).for_each(|lockout| lockout.tally.count(Answer::Rejected));
                Err(mistake)
            }
        }
    }

    /// Counts these attempts, one for each lockout of the call, or none of them.
    async fn ask(&mut self, call: &Call, attempts: Vec<Counted>) -> Result<(), Error> {
        let asked = Asked::now();
        let asking: Vec<Attempt<'_>> = attempts.iter().map(|attempt| attempt.attempt(self.lockouts)).collect();
        let before = match call.mode {
            // It was looked up before any call was asked, and one request of a flood is to ask.
            Mode::Enforce => self.runtime.locked.before(&asking, asked.at),
            Mode::Observe => match self.runtime.locked.recall(&asking, asked.at) {
                Ok(begun) => return self.decide(call, &attempts, &begun, Answer::Passed),
                Err(before) => before,
            },
        };
        // Before the store is asked: a request that is dropped in between may have been counted.
        self.pending.begin(attempts.iter().cloned());
        let question = Question::of_store(&self.lockouts.breaker, asked, call.deadline, |deadline| {
            self.runtime.store.begin_attempts(&asking, deadline)
        });
        let answer = question.ask(asked).await;
        self.runtime.observer.note(Operation::Lockout, &answer);
        match answer.0 {
            Ok(begun) if begun.len() == attempts.len() => {
                self.runtime.locked.learn(&asking, &before, &begun);
                self.decide(call, &attempts, &begun, Answer::Passed)
            }
            Ok(_) => {
                let error = StoreError::new(StoreErrorKind::Answered, "the store did not answer for each lockout");
                self.fall_back(call, attempts, &Outage::Failed(error))
            }
            Err(outage) => self.fall_back(call, attempts, &outage),
        }
    }

    /// What a lockout that only observes has found.
    fn would_have_refused(&self, call: &Call, refusal: &Error) {
        for lockout in self.of(call) {
            lockout.tally.count(Answer::ObservedRejected);
        }
        self.lockouts.complaints.would_have_rejected(&"lockout", refusal);
    }

    /// The longest wait of the tallies that refuse decides.
    fn decide(&mut self, call: &Call, attempts: &[Counted], begun: &[Begun], passed: Answer) -> Result<(), Error> {
        let refused = Refused::longest(begun.iter().filter_map(|begun| begun.refused)).map(Error::attempt_refused);
        if refused.is_some() {
            // All or none: nothing was counted.
            self.pending.forget(attempts);
        }
        if let (Some(refusal), Mode::Observe) = (&refused, call.mode) {
            self.would_have_refused(call, refusal);
            return Ok(());
        }
        for (attempt, begun) in attempts.iter().zip(begun) {
            let answer = if begun.is_allowed() { passed } else { Answer::Rejected };
            self.lockouts.all[attempt.lockout].tally.count(answer);
        }
        refused.map_or(Ok(()), Err)
    }

    /// The answer of the lockouts in an outage: refusing outright comes first, so that it counts nothing elsewhere.
    fn fall_back(&mut self, call: &Call, attempts: Vec<Counted>, outage: &Outage) -> Result<(), Error> {
        self.lockouts.complaints.about(&"lockout", outage);
        if outage.is_unasked() {
            // There is nothing to settle. Any other outage may have come after the count.
            self.pending.forget(&attempts);
        }
        if call.mode == Mode::Observe {
            self.of(call).for_each(|lockout| lockout.tally.count(Answer::Open));
            return Ok(());
        }
        if outage.is_shed() {
            self.of(call).for_each(|lockout| lockout.tally.count(Answer::Shed));
            return Err(Error::too_busy());
        }
        // A request that is out of time has met no outage: whoever can bring that about must not get in by it.
        let is_spent = matches!(outage, Outage::BudgetSpent);
        if is_spent
            || self
                .of(call)
                .any(|lockout| lockout.spec.on_outage == OnOutage::FailClosed)
        {
            self.of(call)
                .for_each(|lockout| lockout.tally.count(Answer::Unavailable));
            self.trail.lockout_fell_back(Fallback::Closed);
            return Err(Error::lockout_unavailable().with_retry_after(self.runtime.settings.retry_after));
        }
        let (local, open): (Vec<_>, Vec<_>) = attempts
            .into_iter()
            .partition(|attempt| self.lockouts.all[attempt.lockout].spec.on_outage == OnOutage::FailLocal);
        for attempt in &open {
            self.lockouts.all[attempt.lockout].tally.count(Answer::Open);
            self.trail.lockout_fell_back(Fallback::Open);
        }
        if local.is_empty() {
            return Ok(());
        }
        self.trail.lockout_fell_back(Fallback::Local);
        let local: Vec<Counted> = local
            .into_iter()
            .map(|attempt| attempt.counted_by(Counter::Process))
            .collect();
        let attempts: Vec<_> = local.iter().map(|attempt| attempt.attempt(self.lockouts)).collect();
        let begun = self.runtime.insurance.begin_attempts_now(&attempts);
        self.pending.begin(local.iter().cloned());
        self.decide(call, &local, &begun, Answer::Local)
    }

    fn of<'c>(&'c self, call: &'c Call) -> impl Iterator<Item = &'c BoundLockout> {
        call.lockouts.iter().map(|&lockout| &self.lockouts.all[lockout])
    }
}
