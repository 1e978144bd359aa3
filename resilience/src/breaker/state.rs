//! The transitions of a breaker: no IO, no clock of its own, nothing that waits.
//!
//! One atomic word holds state and generation. It is read without the lock and written only under it, so that a call
//! through a closed, healthy circuit costs two loads. The lock is never held over code of the user's.

use std::{cell::LazyCell, collections::VecDeque, time::Duration};

use super::{
    config::{BreakerConfig, FailureRate, SlowCalls},
    error::CircuitOpen,
    event::{Cause, Outcome, State, Transition},
    orders::{Held, Leave},
    probe::Probes,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError},
    window::Window,
    word::Word,
};
use crate::clock::nanos;

/// A time that does not come.
pub(super) const NEVER: u64 = u64::MAX;

/// A breaker without name, clock and events. Times are nanoseconds of one monotonic clock.
#[derive(Debug)]
pub(super) struct Machine {
    /// A [`Word`]; written under the lock only.
    word: AtomicU64,
    /// While the circuit is open, when its open time is over. That is the gate, unless others have a say. Written under the
    /// lock.
    pub(super) due: AtomicU64,
    /// While the circuit is not closed, nobody is let in before this time: the end of the open time, or the moment at
    /// which a probe's slot is free. Written under the lock, by a transition before `word`.
    pub(super) gate: AtomicU64,
    inner: Mutex<Inner>,
    pub(super) config: BreakerConfig,
}

/// What a permit remembers of its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) entry: Entry,
    /// When, if a rule needs it.
    pub(super) started: u64,
}

/// In which state of the circuit it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Let in while the circuit was closed.
    Call { generation: u64 },
    /// Let in while it was half-open.
    Probe { lease: u64 },
}

impl Machine {
    /// A closed circuit. `config` must be valid.
    pub(super) fn new(config: BreakerConfig) -> Self {
        let inner = Inner::new(&config);
        Self {
            word: AtomicU64::new(Word::new(0, State::Closed, inner.is_tallying()).into_bits()),
            due: AtomicU64::new(NEVER),
            gate: AtomicU64::new(0),
            inner: Mutex::new(inner),
            config,
        }
    }

    pub(super) fn config(&self) -> &BreakerConfig {
        &self.config
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        self.word().state()
    }

    /// How long from `now` until somebody can be let in; `None` while everybody is.
    pub(super) fn admits_in(&self, now: u64) -> Option<u64> {
        (self.state() != State::Closed).then(|| self.gate.load(Ordering::Relaxed).saturating_sub(now))
    }

    /// How long from `now` until the open time is over; `None` unless the circuit is open, and if there is no end to it.
    pub(super) fn due_in(&self, now: u64) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        (self.state() == State::Open && due != NEVER).then(|| due.saturating_sub(now))
    }

    /// Lets a call in while the circuit is closed, and only then.
    #[inline]
    pub(super) fn admit_call(&self, now: impl FnOnce() -> u64) -> Option<Ticket> {
        let word = self.word();
        (word.state() == State::Closed).then(|| Ticket {
            entry: Entry::Call {
                generation: word.generation(),
            },
            // A rule over slow calls is always tallying: one look at the word spares all others the clock.
            started: if word.is_tallying() && self.config.slow_calls.is_some() {
                read(now)
            } else {
                0
            },
        })
    }

    /// Lets a call in, as a probe if need be. May change the state: [`publish`](Self::publish) after a probe.
    #[inline]
    pub(super) fn admit(&self, now: impl Fn() -> u64) -> Result<Ticket, CircuitOpen> {
        match self.admit_call(&now) {
            Some(ticket) => Ok(ticket),
            None => self.admit_probe(now()),
        }
    }

    /// Counts an outcome. The new state, if that changed it: then [`publish`](Self::publish).
    #[inline]
    pub(super) fn settle(&self, ticket: Ticket, outcome: Outcome, now: impl FnOnce() -> u64) -> Option<State> {
        let Ticket { entry, started } = ticket;
        match entry {
            Entry::Call { generation } => {
                let word = self.word();
                // A success that finds nothing to do here is ordered before any failure that sets the mark later.
                let idle = match outcome {
                    Outcome::Success => !word.is_tallying(),
                    Outcome::Failure => false,
                    Outcome::Neutral => true,
                };
                if idle || word.generation() != generation {
                    return None;
                }
                self.settle_call(generation, started, outcome == Outcome::Failure, now)
            }
            Entry::Probe { lease } => self.settle_probe(lease, started, outcome, now()),
        }
    }

    /// Hands out the transitions since the last time, in order and outside the lock.
    pub(super) fn publish(&self, mut each: impl FnMut(Transition)) {
        loop {
            // A statement of its own: in the head of a `while let` the lock would be held over the body.
            let next = self.lock().next_transition();
            let Some(transition) = next else { return };
            let _turn = Turn(self);
            each(transition);
        }
    }

    #[inline(never)]
    fn admit_probe(&self, now: u64) -> Result<Ticket, CircuitOpen> {
        let gate = self.gate.load(Ordering::Relaxed);
        if now < gate {
            return Err(self.refusal(now));
        }
        let mut inner = self.lock();
        // Another call may have gone first between the looks above and the lock.
        let word = self.word();
        let gate = self.gate.load(Ordering::Relaxed);
        match word.state() {
            State::Closed => {
                return Ok(Ticket {
                    entry: Entry::Call {
                        generation: word.generation(),
                    },
                    started: now,
                });
            }
            _ if now < gate => return Err(self.refusal(now)),
            _ if !self.may_probe(&mut inner, now) => return Err(self.refusal(now)),
            State::Open => self.change(&mut inner, State::HalfOpen, Cause::OpenElapsed, 0, None),
            State::HalfOpen => {}
        }
        let expires = now
            .saturating_add(nanos(self.config.probe_lease))
            .min(inner.leave_ends(now));
        let lease = inner.probes.lease(now, expires);
        self.gate.store(inner.probes.free_at(), Ordering::Relaxed);
        match lease {
            Some(lease) => Ok(Ticket {
                entry: Entry::Probe { lease },
                started: now,
            }),
            None => Err(CircuitOpen::new(None)),
        }
    }

    fn refusal(&self, now: u64) -> CircuitOpen {
        // Past its time a probe may be let in at any moment: others are asked for leave.
        let wait = self.due_in(now).filter(|wait| *wait > 0);
        CircuitOpen::new(wait.map(Duration::from_nanos))
    }

    #[inline(never)]
    fn settle_call(&self, generation: u64, started: u64, failed: bool, now: impl FnOnce() -> u64) -> Option<State> {
        let mut inner = self.lock();
        let word = self.word();
        if word.generation() != generation || inner.held.is_some() {
            return None;
        }
        // Read under the lock, so that times are in the order of the counts, and only by a rule that needs it.
        let now = LazyCell::new(now);
        if let Some(window) = &mut inner.window {
            window.record(failed, || *now);
        }
        let slow = self.is_slow(started, || *now);
        if let Some(window) = &mut inner.slow {
            window.record(slow, || *now);
        }
        inner.failures_in_a_row = if failed {
            inner.failures_in_a_row.saturating_add(1)
        } else {
            0
        };
        // Only what is counted against it opens the circuit, never what just fills a minimum volume.
        let failing = if failed {
            inner.too_many_failed(&self.config)
        } else {
            None
        };
        let cause = failing.or_else(|| if slow { inner.too_many_slow(&self.config) } else { None });
        match cause {
            Some(cause) => {
                self.open(&mut inner, cause, *now);
                Some(State::Open)
            }
            None => {
                self.set_word(Word::new(generation, State::Closed, inner.is_tallying()));
                None
            }
        }
    }

    #[inline(never)]
    fn settle_probe(&self, lease: u64, started: u64, outcome: Outcome, now: u64) -> Option<State> {
        let mut inner = self.lock();
        // A lease that is known belongs to the present half-open state: every transition forgets them all.
        let in_time = inner.probes.give_back(lease, now);
        let cause = match outcome {
            Outcome::Success if self.is_slow(started, || now) => Some(Cause::ProbeSlow),
            Outcome::Failure => Some(Cause::ProbeFailed),
            Outcome::Success | Outcome::Neutral => None,
        };
        match cause {
            Some(cause) if in_time => {
                inner.failed_probes = inner.failed_probes.saturating_add(1);
                self.open(&mut inner, cause, now);
                Some(State::Open)
            }
            None if outcome == Outcome::Success && in_time && inner.probes.succeed() => {
                inner.failed_probes = 0;
                let cause = Cause::ProbesSucceeded(self.config.probes);
                self.change(&mut inner, State::Closed, cause, 0, None);
                Some(State::Closed)
            }
            _ => {
                if self.state() == State::HalfOpen {
                    self.gate.store(inner.probes.free_at(), Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn is_slow(&self, started: u64, now: impl FnOnce() -> u64) -> bool {
        self.config
            .slow_calls
            .is_some_and(|rule| now().saturating_sub(started) >= nanos(rule.threshold))
    }

    fn open(&self, inner: &mut Inner, cause: Cause, now: u64) {
        let random = if self.config.jitter > 0.0 { fastrand::f64() } else { 0.0 };
        let open_for = self.config.open_time(inner.failed_probes, random);
        self.open_for(inner, cause, now, open_for);
    }

    pub(super) fn open_for(&self, inner: &mut Inner, cause: Cause, now: u64, open_for: u64) {
        let due = now.saturating_add(open_for);
        inner.leave = inner.is_joined.then(|| Leave::awaited(due));
        let gate = inner.leave.map_or(due, |leave| leave.alone_from);
        self.change(inner, State::Open, cause, gate, Some(Duration::from_nanos(open_for)));
        self.due.store(due, Ordering::Relaxed);
        inner.changed_at = now;
    }

    /// The one place where the state changes: a new generation, and all counts from zero.
    pub(super) fn change(&self, inner: &mut Inner, to: State, cause: Cause, gate: u64, open_for: Option<Duration>) {
        let word = self.word();
        inner.reset();
        let transition = Transition {
            from: word.state(),
            to,
            cause,
            open_for,
        };
        inner.last = Some(transition);
        inner.journal.push_back(transition);
        self.gate.store(gate, Ordering::Relaxed);
        self.due.store(NEVER, Ordering::Relaxed);
        self.set_word(Word::new(word.generation().wrapping_add(1), to, inner.is_tallying()));
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    pub(super) fn set_word(&self, word: Word) {
        self.word.store(word.into_bits(), Ordering::Release);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves at worst a count that is off by one: no reason to take every caller down.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Out of line: most breakers never need it, and theirs is the path that should stay short.
#[cold]
#[inline(never)]
fn read(now: impl FnOnce() -> u64) -> u64 {
    now()
}

/// The turn of one thread to publish, until it drops.
struct Turn<'a>(&'a Machine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().publishing = false;
    }
}

/// What the lock guards.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    failures_in_a_row: u32,
    /// Over calls that failed.
    window: Option<Window>,
    /// Over calls that were slow.
    slow: Option<Window>,
    pub(super) probes: Probes,
    /// Probes that failed since the circuit was last closed.
    pub(super) failed_probes: u32,
    /// Whether others have a say in when to probe.
    pub(super) is_joined: bool,
    /// What they have said of this opening; `None` if it is this breaker's own business.
    pub(super) leave: Option<Leave>,
    /// An operator's order.
    pub(super) held: Option<Held>,
    /// The last transition, and for openings when it was.
    pub(super) last: Option<Transition>,
    pub(super) changed_at: u64,
    /// Transitions that nobody has been told of yet.
    journal: VecDeque<Transition>,
    /// One thread publishes at a time, so that events leave in the order of the transitions.
    publishing: bool,
}

impl Inner {
    fn new(config: &BreakerConfig) -> Self {
        Self {
            failures_in_a_row: 0,
            window: config.failure_rate.map(|rule| Window::new(rule.window)),
            slow: config.slow_calls.map(|rule| Window::new(rule.window)),
            probes: Probes::new(config.probes),
            failed_probes: 0,
            is_joined: false,
            leave: None,
            held: None,
            last: None,
            changed_at: 0,
            journal: VecDeque::new(),
            publishing: false,
        }
    }

    /// Whether a success has something to count or to clear.
    pub(super) fn is_tallying(&self) -> bool {
        self.held.is_none() && (self.window.is_some() || self.slow.is_some() || self.failures_in_a_row > 0)
    }

    fn too_many_failed(&self, config: &BreakerConfig) -> Option<Cause> {
        if config
            .failures_in_a_row
            .is_some_and(|limit| self.failures_in_a_row >= limit)
        {
            return Some(Cause::FailuresInARow(self.failures_in_a_row));
        }
        let FailureRate { rate, min_calls, .. } = config.failure_rate?;
        let counts = self.window.as_ref()?.counts();
        (counts.calls >= u64::from(min_calls) && counts.rate() >= rate).then_some(Cause::FailureRate {
            failures: counts.marked,
            calls: counts.calls,
        })
    }

    fn too_many_slow(&self, config: &BreakerConfig) -> Option<Cause> {
        let SlowCalls { rate, min_calls, .. } = config.slow_calls?;
        let counts = self.slow.as_ref()?.counts();
        (counts.calls >= u64::from(min_calls) && counts.rate() >= rate).then_some(Cause::SlowCalls {
            slow: counts.marked,
            calls: counts.calls,
        })
    }

    pub(super) fn reset(&mut self) {
        self.failures_in_a_row = 0;
        self.probes.clear();
        for window in [&mut self.window, &mut self.slow].into_iter().flatten() {
            window.clear();
        }
    }

    fn next_transition(&mut self) -> Option<Transition> {
        if self.publishing {
            // Whoever publishes now looks again before it leaves.
            return None;
        }
        let next = self.journal.pop_front();
        self.publishing = next.is_some();
        next
    }
}

#[cfg(test)]
impl Clone for Machine {
    fn clone(&self) -> Self {
        let inner = self.lock().clone();
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Acquire));
        Self {
            word: copy(&self.word),
            due: copy(&self.due),
            gate: copy(&self.gate),
            inner: Mutex::new(inner),
            config: self.config.clone(),
        }
    }
}
