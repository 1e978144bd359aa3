//! A store that a test drives.

mod board;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, future};
use tokio::time::Instant;

pub use self::board::BoardCalls;
use self::board::BoardScript;
use super::{
    Attempt, Begun, BreakerBoard, Lockout, LockoutStatus, Probe, Refused, Settle, Settlement, Store, StoreError,
    StoreErrorKind, StoreFuture, Take, Taken,
    account::{Account, Rule, Stored},
};

/// A store whose answers, errors and delays a test sets, also while it runs.
///
/// Unless told otherwise it knows no API key and no flag, every quota has room, no tally is locked, probes succeed, and
/// breakers are shared over a board in its memory. Delays pass on tokio's clock, so that `tokio::time::pause` drives them. A clone is another handle to the same store.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::testing::{Answer, ScriptedStore};
///
/// let store = ScriptedStore::new()
///     .on_identity(Answer::ok(Some("user-42")).after(Duration::from_millis(20)))
///     .on_flag(Answer::unavailable());
/// // … and, in mid-test:
/// store.on_identity(Answer::never());
/// assert_eq!(store.calls().identity, 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScriptedStore {
    script: Arc<Mutex<Script>>,
}

/// What one operation answers, and when.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    outcome: Outcome<T>,
    delay: Duration,
}

/// How often each operation was called, answered or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Calls of [`Store::identity`].
    pub identity: usize,
    /// Calls of [`Store::flag`].
    pub flag: usize,
    /// Calls of [`Store::take`].
    pub take: usize,
    /// Calls of [`Store::begin_attempts`].
    pub begin: usize,
    /// Calls of [`Store::settle_attempts`].
    pub settle: usize,
    /// Calls of [`Store::limits`].
    pub limits: usize,
    /// Calls of [`Store::probe`].
    pub probe: usize,
}

#[derive(Clone, Debug)]
enum Outcome<T> {
    Ok(T),
    Err(StoreErrorKind),
    Denied,
    Unreadable,
    Never,
}

#[derive(Debug, Default)]
struct Script {
    identity: Answer<Option<String>>,
    flag: Answer<Option<bool>>,
    flags: HashMap<String, Answer<Option<bool>>>,
    take: Answer<TakeScript>,
    begin: Answer<BeginScript>,
    settle: Answer<()>,
    settled: Vec<(String, Settle)>,
    /// `None` while the store keeps what it is given.
    limits: Option<Answer<Vec<(String, String)>>>,
    set_limits: HashMap<String, String>,
    probe: Answer<()>,
    calls: Calls,
    board: BoardScript,
}

/// What the quotas of one call say.
#[derive(Clone, Debug, Default)]
enum TakeScript {
    /// All have room.
    #[default]
    Room,
    /// All say the same.
    Same(Taken),
    /// Each says its own.
    Each(Vec<Taken>),
}

/// What the tallies of one call say.
#[derive(Clone, Debug, Default)]
enum BeginScript {
    /// None is locked.
    #[default]
    Open,
    /// Those of subjects that begin so are locked for this long; an empty text is all of them.
    Locked(String, Duration),
}

impl<T> Answer<T> {
    /// This value, at once.
    #[must_use]
    pub const fn ok(value: T) -> Self {
        Self {
            outcome: Outcome::Ok(value),
            delay: Duration::ZERO,
        }
    }

    /// An error of this kind, at once.
    #[must_use]
    pub const fn error(kind: StoreErrorKind) -> Self {
        Self {
            outcome: Outcome::Err(kind),
            delay: Duration::ZERO,
        }
    }

    /// An outage, at once.
    #[must_use]
    pub const fn unavailable() -> Self {
        Self::error(StoreErrorKind::Unavailable)
    }

    /// Refused credentials, at once.
    #[must_use]
    pub const fn denied() -> Self {
        Self {
            outcome: Outcome::Denied,
            delay: Duration::ZERO,
        }
    }

    /// A value that cannot be read, at once.
    #[must_use]
    pub const fn unreadable() -> Self {
        Self {
            outcome: Outcome::Unreadable,
            delay: Duration::ZERO,
        }
    }

    /// No answer: the caller's deadline decides.
    #[must_use]
    pub const fn never() -> Self {
        Self {
            outcome: Outcome::Never,
            delay: Duration::ZERO,
        }
    }

    /// The same, but this long after the call.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn map<U>(self, convert: impl FnOnce(T) -> U) -> Answer<U> {
        let outcome = match self.outcome {
            Outcome::Ok(value) => Outcome::Ok(convert(value)),
            Outcome::Err(kind) => Outcome::Err(kind),
            Outcome::Denied => Outcome::Denied,
            Outcome::Unreadable => Outcome::Unreadable,
            Outcome::Never => Outcome::Never,
        };
        Answer {
            outcome,
            delay: self.delay,
        }
    }

    async fn give(self) -> Result<T, StoreError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match self.outcome {
            Outcome::Ok(value) => Ok(value),
            Outcome::Err(kind) => Err(StoreError::new(kind, "the test's script says so")),
            Outcome::Denied => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "the test's script refuses the credentials").denied())
            }
            Outcome::Unreadable => {
                Err(StoreError::new(StoreErrorKind::Answered, "the test's script has an unreadable value").unreadable())
            }
            Outcome::Never => future::pending().await,
        }
    }

    const fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok(_))
    }
}

impl<T: Default> Default for Answer<T> {
    fn default() -> Self {
        Self::ok(T::default())
    }
}

/// Every setter counts from the next call on, and hands the store back so that settings can be chained.
impl ScriptedStore {
    /// The defaults above.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Who every API key belongs to.
    pub fn on_identity(&self, answer: Answer<Option<&str>>) -> Self {
        self.set(|script| script.identity = answer.map(|user| user.map(str::to_owned)))
    }

    /// The value of every flag that has none of its own.
    pub fn on_flag(&self, answer: Answer<Option<bool>>) -> Self {
        self.set(|script| script.flag = answer)
    }

    /// The value of one flag.
    pub fn on_flag_named(&self, name: &str, answer: Answer<Option<bool>>) -> Self {
        self.set(|script| _ = script.flags.insert(name.to_owned(), answer))
    }

    /// What every quota says.
    pub fn on_take(&self, answer: Answer<Taken>) -> Self {
        self.set(|script| script.take = answer.map(TakeScript::Same))
    }

    /// What the quotas of one call say, in their order; those past the end have room.
    pub fn on_take_each(&self, answer: Answer<Vec<Taken>>) -> Self {
        self.set(|script| script.take = answer.map(TakeScript::Each))
    }

    /// No tally is locked, or why that cannot be said.
    pub fn on_begin(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.begin = answer.map(|()| BeginScript::Open))
    }

    /// Tallies of subjects that begin with `subject` are locked for this long: `ip:`, `account:`, or all for none.
    pub fn on_begin_locked(&self, subject: &str, wait: Duration) -> Self {
        self.set(|script| script.begin = Answer::ok(BeginScript::Locked(subject.to_owned(), wait)))
    }

    /// Whether attempts can be settled.
    pub fn on_settle(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.settle = answer)
    }

    /// What was asked to be settled so far: the subject, and how.
    #[must_use]
    pub fn settled(&self) -> Vec<(String, Settle)> {
        self.script().settled.clone()
    }

    /// The limits by name that the store holds, name and text, whatever is set through it.
    pub fn on_limits(&self, answer: Answer<Vec<(String, String)>>) -> Self {
        self.set(|script| script.limits = Some(answer))
    }

    /// Whether the store would serve again.
    pub fn on_probe(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.probe = answer)
    }

    /// Gives every operation's next calls an outage for an answer, at once.
    pub fn down(&self) -> Self {
        self.set(|script| {
            script.identity = Answer::unavailable();
            script.flag = Answer::unavailable();
            script.flags.clear();
            script.take = Answer::unavailable();
            script.begin = Answer::unavailable();
            script.settle = Answer::unavailable();
            script.limits = Some(Answer::unavailable());
            script.probe = Answer::unavailable();
            script.board.all(&Answer::unavailable());
        })
    }

    /// How often each operation was called so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.script().calls
    }

    fn set(&self, change: impl FnOnce(&mut Script)) -> Self {
        change(&mut self.script());
        self.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call when it is first polled, and gives the answer that is set by then.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        called: impl FnOnce(&mut Script) -> Answer<T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        async move {
            let answer = called(&mut self.script());
            answer.give().await
        }
        .boxed()
    }
}

impl Store for ScriptedStore {
    fn identity<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<String>> {
        self.answer(|script| {
            script.calls.identity += 1;
            script.identity.clone()
        })
    }

    fn flag<'a>(&'a self, name: &'a str, _: Instant) -> StoreFuture<'a, Option<bool>> {
        self.answer(move |script| {
            script.calls.flag += 1;
            script.flags.get(name).unwrap_or(&script.flag).clone()
        })
    }

    fn take<'a>(&'a self, takes: &'a [Take<'a>], _: Instant) -> StoreFuture<'a, Vec<Taken>> {
        self.answer(move |script| {
            script.calls.take += 1;
            script.take.clone().map(|taken| taken.of(takes))
        })
    }

    fn begin_attempts<'a>(&'a self, attempts: &'a [Attempt<'a>], _: Instant) -> StoreFuture<'a, Vec<Begun>> {
        self.answer(move |script| {
            script.calls.begin += 1;
            script.begin.clone().map(|begun| begun.of(attempts))
        })
    }

    fn settle_attempts<'a>(&'a self, settled: &'a [Settlement<'a>], _: Instant) -> StoreFuture<'a, ()> {
        self.answer(move |script| {
            script.calls.settle += 1;
            let settled = settled
                .iter()
                .map(|settled| (settled.attempt.subject.to_owned(), settled.settle));
            script.settled.extend(settled);
            script.settle.clone()
        })
    }

    fn lockout_status<'a>(&'a self, _: &'a Lockout, subject: &'a str, _: Instant) -> StoreFuture<'a, LockoutStatus> {
        self.answer(move |script| script.begin.clone().map(|begun| begun.status(subject)))
    }

    fn unlock<'a>(&'a self, _: &'a Lockout, _: &'a str, _: Instant) -> StoreFuture<'a, bool> {
        self.answer(|script| script.settle.clone().map(|()| true))
    }

    fn limits(&self, _: Instant) -> StoreFuture<'_, Vec<(String, String)>> {
        self.answer(|script| {
            script.calls.limits += 1;
            match &script.limits {
                Some(answer) => answer.clone(),
                None => Answer::ok(script.set_limits.clone().into_iter().collect()),
            }
        })
    }

    fn set_limit<'a>(&'a self, name: &'a str, limit: Option<&'a str>, _: Instant) -> StoreFuture<'a, ()> {
        self.answer(move |script| {
            if let Some(
                answer @ Answer {
                    outcome: Outcome::Err(_) | Outcome::Denied | Outcome::Never,
                    ..
                },
            ) = &script.limits
            {
                return answer.clone().map(drop);
            }
            match limit {
                Some(limit) => script.set_limits.insert(name.to_owned(), limit.to_owned()),
                None => script.set_limits.remove(name),
            };
            Answer::ok(())
        })
    }

    fn board(&self) -> Option<&dyn BreakerBoard> {
        Some(self)
    }

    fn probe(&self, _: Probe, _: Instant) -> StoreFuture<'_, ()> {
        self.answer(|script| {
            script.calls.probe += 1;
            script.probe.clone()
        })
    }
}

impl TakeScript {
    fn of(self, takes: &[Take<'_>]) -> Vec<Taken> {
        let room = takes.iter().map(first_of);
        match self {
            Self::Room => room.collect(),
            Self::Same(taken) => room.map(|_| taken).collect(),
            Self::Each(each) => {
                let past_the_end = room.skip(each.len());
                each.iter().copied().take(takes.len()).chain(past_the_end).collect()
            }
        }
    }
}

impl BeginScript {
    fn status(&self, subject: &str) -> LockoutStatus {
        let locked_for = match self {
            Self::Locked(prefix, wait) if subject.starts_with(prefix.as_str()) => Some(*wait),
            _ => None,
        };
        LockoutStatus {
            locked_for,
            locks: locked_for.is_some().into(),
            ..LockoutStatus::default()
        }
    }

    fn of(self, attempts: &[Attempt<'_>]) -> Vec<Begun> {
        let begun = |attempt: &Attempt<'_>| match self.status(attempt.subject).locked_for {
            None => Begun {
                remaining: attempt.lockout.attempts.saturating_sub(1),
                refused: None,
            },
            Some(retry_after) => Begun {
                remaining: 0,
                refused: Some(Refused::Locked { retry_after }),
            },
        };
        attempts.iter().map(begun).collect()
    }
}

/// What a quota says to the first request of a window.
fn first_of(take: &Take<'_>) -> Taken {
    let mut account = Account::open(Rule::of(take), &Stored::Nothing, 0);
    account.charge();
    account.taken(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Algorithm, store::Quota};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_come_when_they_are_due() {
        let store = ScriptedStore::new().on_identity(Answer::ok(Some("user-42")).after(Duration::from_millis(20)));
        let asked = Instant::now();
        assert_eq!(store.identity("key", soon()).await.unwrap().as_deref(), Some("user-42"));
        assert_eq!(asked.elapsed(), Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn the_script_changes_while_it_runs_and_calls_are_counted() {
        let store = ScriptedStore::new().on_flag_named("checkout", Answer::ok(Some(true)));
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
        assert_eq!(store.flag("other", soon()).await.unwrap(), None);
        store.down();
        let error = store.flag("checkout", soon()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        store.on_probe(Answer::never());
        let probe = store.probe(Probe::Write, soon());
        assert!(tokio::time::timeout_at(soon(), probe).await.is_err());
        assert_eq!(
            store.calls(),
            Calls {
                flag: 3,
                probe: 1,
                ..Calls::default()
            }
        );
    }

    #[tokio::test]
    async fn quotas_beyond_the_script_have_room() {
        let quota = Quota {
            id: "q".to_owned(),
            limit: 5,
            window: Duration::from_secs(60),
            algorithm: Algorithm::SlidingWindow,
            burst: 5,
        };
        let refused = Taken {
            allowed: false,
            remaining: 0,
            retry_after: Duration::from_secs(1),
            reset: Duration::from_secs(1),
        };
        let store = ScriptedStore::new().on_take_each(Answer::ok(vec![refused]));
        let takes = [Take {
            quota: &quota,
            client: "a",
            cost: 1,
        }; 2];
        let taken = store.take(&takes, soon()).await.unwrap();
        assert_eq!(taken, [refused, first_of(&takes[1])]);
    }
}
