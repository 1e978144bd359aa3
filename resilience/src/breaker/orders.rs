//! A breaker that is one of several: what others say of it, and what it obeys.
//!
//! Calls never wait for the others. A breaker that has joined opens at once, and then leaves its probe to whoever asks the
//! others for leave. All that it grants them is [`PATIENCE`]: if nothing is heard, it goes on alone.

use std::time::Duration;

use super::{
    event::{Cause, State},
    state::{Inner, Machine, NEVER},
    sync::Ordering,
    word::Word,
};

/// How long after its time a probe is held back for others who have said nothing, or nothing more.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

const PATIENCE_NANOS: u64 = PATIENCE.as_nanos() as u64;

/// Whether a probe may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    /// Until when one may; 0 while none was granted.
    until: u64,
    /// From when this breaker decides by itself.
    pub(super) alone_from: u64,
}

impl Leave {
    /// For an opening that is due then.
    pub(super) fn awaited(due: u64) -> Self {
        Self {
            until: 0,
            alone_from: due.saturating_add(PATIENCE_NANOS),
        }
    }
}

/// In which state an operator holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Open,
    Closed,
}

/// What the others say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is open, for so many nanoseconds more, and so many probes have failed.
    Open { due_in: u64, failed_probes: u32 },
    /// It is closed.
    Close,
    /// Nobody can be asked, or nobody else minds: it decides by itself.
    Alone,
    /// Somebody else probes.
    Wait,
    /// It may probe until then.
    Probe { until: u64 },
    /// It may no longer, unless a probe is under way: then the order is not obeyed.
    GiveUp,
    /// An operator holds it.
    Hold(Held),
    /// The operator has let go.
    Release,
}

/// How it stands, for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) generation: u64,
    pub(crate) state: State,
    /// Why it changed last; `None` if it never has.
    pub(crate) cause: Option<Cause>,
    /// When it opened last.
    pub(crate) opened_at: u64,
    /// How long it was to stay open then.
    pub(crate) open_for: Option<Duration>,
    pub(crate) failed_probes: u32,
    /// When a probe may go: at once while it is half-open, [`NEVER`] while it is closed or held open.
    pub(crate) due_at: u64,
    /// Whether a probe of its own is under way.
    pub(crate) is_probing: bool,
    /// Whether it goes by itself alone when it probes.
    pub(crate) is_alone: bool,
    pub(crate) held: Option<Held>,
}

impl Machine {
    /// From now on others have a say.
    pub(super) fn join(&self) {
        let mut inner = self.lock();
        inner.is_joined = true;
        inner.probes.one_by_one(true);
    }

    /// On its own again, and nobody's orders hold. May change the state: [`publish`](Machine::publish) after it.
    pub(super) fn part(&self) {
        let mut inner = self.lock();
        self.release(&mut inner);
        self.go_alone(&mut inner);
        inner.is_joined = false;
        inner.probes.one_by_one(false);
    }

    pub(super) fn news(&self, now: u64) -> News {
        let inner = self.lock();
        let word = self.word();
        News {
            generation: word.generation(),
            state: word.state(),
            cause: inner.last.map(|last| last.cause),
            opened_at: inner.changed_at,
            open_for: inner.last.and_then(|last| last.open_for),
            failed_probes: inner.failed_probes,
            due_at: match word.state() {
                State::HalfOpen => 0,
                State::Open | State::Closed => self.due.load(Ordering::Relaxed),
            },
            is_probing: inner.probes.is_out(now),
            is_alone: inner.leave.is_none(),
            held: inner.held,
        }
    }

    /// Obeys, unless it has changed since `generation`: then the order was given for something else. Answers its generation
    /// after that. May change the state: [`publish`](Machine::publish) after it.
    pub(super) fn obey(&self, generation: u64, order: Order, now: u64) -> Option<u64> {
        let mut inner = self.lock();
        let word = self.word();
        if word.generation() != generation || !inner.is_joined {
            return None;
        }
        match order {
            Order::Hold(held) => self.hold(&mut inner, held),
            Order::Release => self.release(&mut inner),
            // An operator knows better.
            _ if inner.held.is_some() => return None,
            Order::Open { due_in, failed_probes } => self.follow(&mut inner, now, due_in, failed_probes),
            Order::Close if word.state() == State::Closed => {}
            Order::Close => {
                inner.failed_probes = 0;
                self.change(&mut inner, State::Closed, Cause::ClosedByOthers, 0, None);
            }
            Order::Alone => self.go_alone(&mut inner),
            Order::GiveUp if inner.probes.is_out(now) => return None,
            Order::Wait | Order::GiveUp => self.give_leave(&mut inner, Leave::awaited(now)),
            Order::Probe { until } => self.give_leave(
                &mut inner,
                Leave {
                    until,
                    alone_from: until.saturating_add(PATIENCE_NANOS),
                },
            ),
        }
        Some(self.word().generation())
    }

    /// Whether a probe may go now; if not, the gate tells when to look again.
    pub(super) fn may_probe(&self, inner: &mut Inner, now: u64) -> bool {
        match inner.leave {
            Some(leave) if leave.until <= now && now < leave.alone_from => {
                self.gate.store(leave.alone_from, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }

    fn follow(&self, inner: &mut Inner, now: u64, due_in: u64, failed_probes: u32) {
        inner.failed_probes = failed_probes;
        if self.state() == State::Open {
            let due = now.saturating_add(due_in);
            let leave = Leave::awaited(due);
            inner.leave = Some(leave);
            self.due.store(due, Ordering::Relaxed);
            self.gate.store(leave.alone_from, Ordering::Relaxed);
        } else {
            self.open_for(inner, Cause::OpenedByOthers, now, due_in);
        }
    }

    fn give_leave(&self, inner: &mut Inner, leave: Leave) {
        let gate = match self.state() {
            State::Closed => return,
            _ if leave.until == 0 => leave.alone_from,
            State::Open => self.due.load(Ordering::Relaxed),
            State::HalfOpen => inner.probes.free_at(),
        };
        inner.leave = Some(leave);
        self.gate.store(gate, Ordering::Relaxed);
    }

    fn go_alone(&self, inner: &mut Inner) {
        inner.leave = None;
        match self.state() {
            State::Closed => {}
            State::Open => self.gate.store(self.due.load(Ordering::Relaxed), Ordering::Relaxed),
            State::HalfOpen => self.gate.store(inner.probes.free_at(), Ordering::Relaxed),
        }
    }

    fn hold(&self, inner: &mut Inner, held: Held) {
        inner.held = Some(held);
        inner.leave = None;
        inner.failed_probes = 0;
        match (held, self.state()) {
            (Held::Open, State::Open) => {
                self.due.store(NEVER, Ordering::Relaxed);
                self.gate.store(NEVER, Ordering::Relaxed);
            }
            (Held::Open, _) => self.change(inner, State::Open, Cause::HeldOpen, NEVER, None),
            (Held::Closed, State::Closed) => self.begin_anew(inner),
            (Held::Closed, _) => self.change(inner, State::Closed, Cause::HeldClosed, 0, None),
        }
    }

    fn release(&self, inner: &mut Inner) {
        match inner.held.take() {
            None => {}
            Some(Held::Open) => self.change(inner, State::Closed, Cause::Released, 0, None),
            Some(Held::Closed) => self.begin_anew(inner),
        }
    }

    /// Closed as before, with a generation of its own: no call counts by rules that it was not let in under.
    fn begin_anew(&self, inner: &mut Inner) {
        inner.reset();
        let generation = self.word().generation().wrapping_add(1);
        self.set_word(Word::new(generation, State::Closed, inner.is_tallying()));
    }
}

impl Inner {
    /// When a probe that goes now loses its leave; never, if it needs none.
    pub(super) fn leave_ends(&self, now: u64) -> u64 {
        match self.leave {
            Some(leave) if now < leave.until => leave.until,
            _ => u64::MAX,
        }
    }
}
