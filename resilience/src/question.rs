//! One question to the store: behind a breaker, with a deadline, polled beside the others of its phase.

use std::{
    cell::OnceCell,
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    asking,
    breaker::Permit,
    deadline,
    error::Error,
    standing::Standing,
    store::{StoreError, StoreErrorKind, StoreFuture, Timing},
    store_breaker::StoreBreaker,
};

/// How long after its deadline the answer of a store that keeps the time itself is waited for: only a process that is
/// short of processors is that late.
const LATE: Duration = Duration::from_secs(2);

/// Why a question has no answer of use.
#[derive(Debug)]
pub(crate) enum Outage {
    /// The breaker refused: the store was not asked.
    BreakerOpen,
    /// No answer within the guard's deadline.
    DeadlineExceeded,
    /// The enclosing scope's budget ran out first: says nothing about the store.
    BudgetSpent,
    /// This process was too late to look at the answer of a store that keeps the time itself.
    Shed,
    /// The store could not answer, or answered with nothing of use.
    Failed(StoreError),
}

impl Outage {
    /// Whether the store has certainly not been asked.
    pub(crate) fn is_unasked(&self) -> bool {
        match self {
            Self::BreakerOpen => true,
            Self::Failed(error) => error.kind() == StoreErrorKind::Saturated,
            Self::DeadlineExceeded | Self::BudgetSpent | Self::Shed => false,
        }
    }

    /// Whether this process is short of something, and the store is not to blame: then the request is refused, whatever
    /// its guards do in an outage.
    pub(crate) fn is_shed(&self) -> bool {
        match self {
            Self::Shed => true,
            Self::Failed(error) => error.kind() == StoreErrorKind::Saturated,
            Self::BreakerOpen | Self::DeadlineExceeded | Self::BudgetSpent => false,
        }
    }
}

#[cfg(feature = "metrics")]
impl Outage {
    /// What metrics call the kinds.
    pub(crate) const KINDS: [&'static str; 7] = [
        "breaker_open",
        "deadline_exceeded",
        "budget_spent",
        "unavailable",
        "answered",
        "saturated",
        "shed",
    ];

    /// The kind's place among them.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::BreakerOpen => 0,
            Self::DeadlineExceeded => 1,
            Self::BudgetSpent => 2,
            Self::Shed => 6,
            Self::Failed(error) => match error.kind() {
                StoreErrorKind::TimedOut => 1,
                StoreErrorKind::Unavailable => 3,
                StoreErrorKind::Answered => 4,
                StoreErrorKind::Saturated => 5,
            },
        }
    }
}

impl From<StoreError> for Outage {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::TimedOut => Self::DeadlineExceeded,
            _ => Self::Failed(error),
        }
    }
}

/// For callers that are no guards.
impl From<Outage> for StoreError {
    fn from(outage: Outage) -> Self {
        match outage {
            Outage::Failed(error) => error,
            Outage::Shed => Self::new(StoreErrorKind::Saturated, Outage::Shed.to_string()),
            outage => Self::new(
                StoreErrorKind::Unavailable,
                format!("the store gave no answer: {outage}"),
            ),
        }
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BreakerOpen => f.write_str("its circuit breaker is open"),
            Self::DeadlineExceeded => f.write_str("it did not answer within the guard's deadline"),
            Self::BudgetSpent => f.write_str("the request's own deadline came first"),
            Self::Shed => f.write_str("this process is too busy to read its answer"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// The instant at which a phase of questions was asked: all deadlines of the phase count from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    budget: Option<Instant>,
    /// Who is asking: decides which question is first where they wait in line.
    standing: Standing,
}

impl Asked {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            budget: deadline::current(),
            standing: Standing::Unknown,
        }
    }

    /// For a caller of this standing.
    pub(crate) fn by(self, standing: Standing) -> Self {
        Self { standing, ..self }
    }

    /// When a question ends that has until `own`, and whether that is its own time and not the enclosing scope's.
    fn until(self, own: Instant) -> (Instant, bool) {
        match self.budget {
            Some(budget) if budget < own => (budget, false),
            _ => (own, true),
        }
    }
}

/// A question on its way.
pub(crate) struct Question<'a, T> {
    /// When it ends unanswered.
    deadline: Instant,
    /// Whether `deadline` is the guard's own, and not the enclosing scope's.
    own: bool,
    state: State<'a, T>,
}

enum State<'a, T> {
    Asking {
        admission: Option<Admission<'a>>,
        answer: StoreFuture<'a, T>,
        standing: Standing,
        polled: bool,
    },
    Answered(Result<T, Outage>, Option<Duration>),
    Read,
}

/// A breaker and its permit. Dropped unsettled it counts for nothing.
struct Admission<'a> {
    breaker: &'a Arc<StoreBreaker>,
    permit: Permit<'a>,
    /// Whether an answer ends a row of failures.
    proves: bool,
}

impl<'a, T> Question<'a, T> {
    /// Asks the store behind `breaker`; `ask` is not called while the breaker refuses.
    pub(crate) fn of_store(
        breaker: &'a Arc<StoreBreaker>,
        asked: Asked,
        within: Duration,
        ask: impl FnOnce(Instant) -> StoreFuture<'a, T>,
    ) -> Self {
        let Some(permit) = breaker.admit() else {
            return Self::answered(asked, Outage::BreakerOpen);
        };
        let admission = Admission {
            breaker,
            permit,
            proves: true,
        };
        Self::new(Some(admission), asked, within, ask)
    }

    /// Counts an answer as neutral: it does not show that the store would take a write.
    pub(crate) fn proving_nothing(mut self) -> Self {
        if let State::Asking {
            admission: Some(admission),
            ..
        } = &mut self.state
        {
            admission.proves = false;
        }
        self
    }

    /// Asks somebody else, with no breaker of ours.
    pub(crate) fn of_other(asked: Asked, within: Duration, ask: impl FnOnce(Instant) -> StoreFuture<'a, T>) -> Self {
        Self::new(None, asked, within, ask)
    }

    fn new(
        admission: Option<Admission<'a>>,
        asked: Asked,
        within: Duration,
        ask: impl FnOnce(Instant) -> StoreFuture<'a, T>,
    ) -> Self {
        let end = asked.at + within;
        if asked.until(end).0 <= asked.at {
            return Self::answered(asked, Outage::BudgetSpent);
        }
        let timing = admission.as_ref().map(|admission| admission.breaker.timing());
        // The line before such a store is bounded by the deadline too, before it counts from the sending.
        let last = match timing {
            Some(Timing::ByStore) => end + within + LATE,
            _ => end,
        };
        let (deadline, own) = asked.until(last);
        Self {
            deadline,
            own,
            state: State::Asking {
                admission,
                // The guard's own: the one asked must not take a caller's short budget for its own slowness.
                answer: ask(end),
                standing: asked.standing,
                polled: false,
            },
        }
    }

    fn answered(asked: Asked, outage: Outage) -> Self {
        Self {
            deadline: asked.at,
            own: true,
            state: State::Answered(Err(outage), None),
        }
    }

    /// The answer, and how long it took if the store gave it.
    ///
    /// # Panics
    ///
    /// When there is none yet, or it has been read.
    pub(crate) fn read(&mut self) -> (Result<T, Outage>, Option<Duration>) {
        match std::mem::replace(&mut self.state, State::Read) {
            State::Answered(answer, took) => (answer, took),
            State::Asking { .. } | State::Read => unreachable!("a phase reads each answer once, after it has come"),
        }
    }

    /// Waits for the answer to this question alone.
    pub(crate) async fn ask(mut self, asked: Asked) -> (Result<T, Outage>, Option<Duration>) {
        // A phase of one refuses nothing.
        let _never_refused = ask_together(&mut Alone(&mut self), asked).await;
        self.read()
    }

    /// Ends the question unanswered. The permit settles first: dropping the future may take time.
    fn expire(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Read);
        let admission = match state {
            State::Asking { admission, .. } => admission,
            State::Answered(..) | State::Read => None,
        };
        let outage = match &admission {
            _ if !self.own => Outage::BudgetSpent,
            // The store would have said so by now if it were late: this process is.
            Some(Admission { breaker, .. }) if breaker.timing() == Timing::ByStore => Outage::Shed,
            _ => Outage::DeadlineExceeded,
        };
        if let Some(Admission { breaker, permit, .. }) = admission
            && matches!(outage, Outage::DeadlineExceeded)
        {
            breaker.fail(permit);
        }
        self.state = State::Answered(Err(outage), None);
    }
}

/// What a phase does with each of its questions, whatever they ask for.
pub(crate) trait Pending {
    /// Polls for the answer if it is not there yet.
    fn poll(&mut self, cx: &mut Context<'_>, asked: Asked, now: &Now);

    /// Whether the answer is there to read.
    fn is_answered(&self) -> bool;

    /// Ends the question if its deadline has come; else says when it will. `None` once answered.
    fn expire_or_due(&mut self, now: Instant) -> Option<Instant>;
}

impl<T> Pending for Question<'_, T> {
    fn poll(&mut self, cx: &mut Context<'_>, asked: Asked, now: &Now) {
        let State::Asking {
            admission,
            answer,
            standing,
            polled,
        } = &mut self.state
        else {
            return;
        };
        let first = !std::mem::replace(polled, true);
        let (Poll::Ready(answer), took) = asking::poll_for(*standing, || answer.as_mut().poll(cx)) else {
            return;
        };
        let timing = admission.as_ref().map(|admission| admission.breaker.timing());
        let answered_at = match timing {
            // Code of the user's may have kept the thread for as long as it liked, at the first poll or at any other.
            None => Instant::now(),
            // A store's answer at the first poll took no time worth a look at the clock.
            Some(_) if first => asked.at,
            // When this process looks is not the store's time.
            Some(Timing::ByStore) if took.is_some() => asked.at,
            Some(_) => now.read(),
        };
        if answered_at > self.deadline {
            return self.expire();
        }
        let took = took.unwrap_or(answered_at - asked.at);
        let admission = admission.take();
        let answer = answer.map_err(|error| {
            let kind = error.kind();
            let is_reported = error.is_reported();
            (Outage::from(error), kind, is_reported)
        });
        if let Some(Admission {
            breaker,
            permit,
            proves,
        }) = admission
        {
            match &answer {
                Ok(_) if proves => permit.took(took).success(),
                Ok(_) => permit.neutral(),
                // One event is one failure, however many questions it has met.
                Err((_, _, true)) => permit.neutral(),
                Err((_, StoreErrorKind::Unavailable | StoreErrorKind::TimedOut, false)) => {
                    breaker.fail(permit.took(took))
                }
                // A store that answers nonsense has not failed, but what failures it had before it does not undo.
                Err((_, StoreErrorKind::Answered | StoreErrorKind::Saturated, false)) => permit.neutral(),
            }
        }
        self.state = State::Answered(answer.map_err(|(outage, ..)| outage), Some(took));
    }

    fn is_answered(&self) -> bool {
        matches!(self.state, State::Answered(..))
    }

    fn expire_or_due(&mut self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Asking { .. } if self.deadline <= now => {
                self.expire();
                None
            }
            State::Asking { .. } => Some(self.deadline),
            State::Answered(..) | State::Read => None,
        }
    }
}

/// A phase of one question, whose answer is read by whoever asked.
struct Alone<'q, 'a, T>(&'q mut Question<'a, T>);

impl<T> Phase for Alone<'_, '_, T> {
    fn len(&self) -> usize {
        1
    }

    fn question(&mut self, _index: usize) -> Option<&mut dyn Pending> {
        Some(self.0)
    }

    fn read(&mut self, _index: usize) -> Result<(), Error> {
        Ok(())
    }
}

/// The time of one poll, read at most once.
#[derive(Default)]
pub(crate) struct Now(OnceCell<Instant>);

impl Now {
    fn read(&self) -> Instant {
        *self.0.get_or_init(Instant::now)
    }
}

/// Questions that are asked together and read in their order.
pub(crate) trait Phase {
    /// How many questions there are.
    fn len(&self) -> usize;

    /// The question at this place in the order; `None` if there was no need to ask.
    fn question(&mut self, index: usize) -> Option<&mut dyn Pending>;

    /// Reads the answer at this place. Called once for each, in order, until one refuses.
    fn read(&mut self, index: usize) -> Result<(), Error>;
}

/// Asks all questions of a phase at once and reads their answers in order, as if each had been asked after the one
/// before. Returns as soon as no later answer can change the outcome; questions still on their way are dropped.
///
/// One timer serves the whole phase, and none is set if every answer is there at once.
pub(crate) async fn ask_together(phase: &mut impl Phase, asked: Asked) -> Result<(), Error> {
    let mut timer = pin!(None::<Sleep>);
    let mut next = 0;
    poll_fn(|cx| {
        let now = Now::default();
        for index in next..phase.len() {
            if let Some(question) = phase.question(index) {
                question.poll(cx, asked, &now);
            }
        }
        loop {
            while next < phase.len() && phase.question(next).is_none_or(|question| question.is_answered()) {
                next += 1;
                phase.read(next - 1)?;
            }
            if next == phase.len() {
                return Poll::Ready(Ok(()));
            }
            // A timer that fires early only wakes us for nothing; one that is late breaks a promise. So it always
            // stands at the earliest deadline that is still ahead.
            if let Some(timer) = timer.as_mut().as_pin_mut()
                && timer.poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            let now = Instant::now();
            let due = (next..phase.len())
                .filter_map(|index| phase.question(index)?.expire_or_due(now))
                .min();
            if let Some(due) = due {
                timer.set(Some(sleep_until(due)));
            }
        }
    })
    .await
}
