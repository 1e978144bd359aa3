//! Who is in flight and who waits: pure transitions, no lock, no clock, nothing that waits.
//!
//! Between any two calls nobody waits while a place is free. So whoever finds a free place overtakes
//! nobody, and the common case looks at two numbers only.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    task::Waker,
};

use super::{
    adaptive::Adaptive,
    error::{Shed, ShedCounts},
    estimator::{Estimator, Sample},
    priority::Priority,
};

/// A place in the queue. The order is the order of service, and the last one is the first to be displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    priority: Priority,
    number: u64,
}

/// What became of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Admitted,
    Queued(Ticket),
}

/// Times are nanoseconds of one clock.
#[derive(Debug)]
pub(super) struct State {
    limit: u32,
    /// What was configured: the limit of all in flight, whatever an adaptive one has come to.
    ceiling: u32,
    in_flight: u32,
    /// Those in flight whose work is done, and whose answer is being sent. An adaptive limit is about work.
    sending: u32,
    /// How many may wait.
    queue: u32,
    line: BTreeMap<Ticket, Waiter>,
    /// The waiters of `line` by the end of their time.
    ends: BTreeSet<(u64, Ticket)>,
    /// What was decided for waiters that have not asked since. A granted one is in flight already.
    answers: BTreeMap<Ticket, Answer>,
    arrivals: u64,
    shed: ShedCounts,
    /// What moves the limit; `None` if nothing does.
    estimator: Option<Box<Estimator>>,
    aside: Aside,
}

#[derive(Debug)]
struct Waiter {
    end: u64,
    /// `None` until it is polled for the first time.
    waker: Option<Waker>,
}

pub(super) type Answer = Result<(), Shed>;

/// Wakers to be woken or dropped once the lock is free: either may run code that comes back here.
#[derive(Debug, Default)]
pub(super) struct Aside {
    wake: Vec<Waker>,
    gone: Vec<Waker>,
}

impl State {
    /// `limit` is the ceiling of an adaptive one.
    pub(super) fn new(limit: u32, queue: u32, adaptive: Option<Adaptive>) -> Self {
        let estimator = adaptive.map(|config| Box::new(Estimator::new(config, limit)));
        Self {
            limit: estimator.as_ref().map_or(limit, |estimator| estimator.limit()),
            ceiling: limit,
            in_flight: 0,
            sending: 0,
            queue,
            line: BTreeMap::new(),
            ends: BTreeSet::new(),
            answers: BTreeMap::new(),
            arrivals: 0,
            shed: ShedCounts::default(),
            estimator,
            aside: Aside::default(),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn queued(&self) -> usize {
        self.line.len()
    }

    pub(super) fn shed(&self) -> ShedCounts {
        self.shed
    }

    /// Whether nothing at all is held for anybody.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self.sending == 0
            && self.line.is_empty()
            && self.ends.is_empty()
            && self.answers.is_empty()
    }

    /// Takes a place if one is free.
    #[inline]
    pub(super) fn admit(&mut self) -> bool {
        let free = self.has_room();
        self.in_flight += u32::from(free);
        free
    }

    /// Counts the refusal of a caller that found no free place and will not wait.
    pub(super) fn refuse(&mut self, reason: Shed) -> Shed {
        self.shed.count(reason);
        reason
    }

    /// Takes a place, or one in the queue that is good until `end`.
    pub(super) fn arrive(&mut self, priority: Priority, now: u64, end: u64) -> Result<Arrival, Shed> {
        if self.admit() {
            return Ok(Arrival::Admitted);
        }
        if self.queue == 0 {
            return Err(self.refuse(Shed::QueueFull));
        }
        if end <= now {
            return Err(self.refuse(Shed::QueueTimeout));
        }
        if self.is_full() {
            self.skip_spent(now);
        }
        if self.is_full() {
            match self.line.last_key_value() {
                Some((&newest, _)) if newest.priority > priority => self.answer(newest, Err(Shed::Displaced)),
                _ => return Err(self.refuse(Shed::QueueFull)),
            }
        }
        let ticket = Ticket {
            priority,
            number: self.arrivals,
        };
        self.arrivals += 1;
        self.line.insert(ticket, Waiter { end, waker: None });
        self.ends.insert((end, ticket));
        Ok(Arrival::Queued(ticket))
    }

    /// What was decided for a waiter, once; before that `waker` is kept for the decision.
    pub(super) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Option<Answer> {
        if let Some(waiter) = self.line.get_mut(&ticket) {
            if !waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                self.aside.gone.extend(waiter.waker.replace(waker.clone()));
            }
            return None;
        }
        self.answers.remove(&ticket)
    }

    /// The waiter's own timer has ended. A decision that came before it stands.
    pub(super) fn expire(&mut self, ticket: Ticket) -> Answer {
        match self.remove(ticket) {
            Some(waiter) => {
                self.aside.gone.extend(waiter.waker);
                Err(self.refuse(Shed::QueueTimeout))
            }
            None => self.answers.remove(&ticket).unwrap_or(Err(Shed::QueueTimeout)),
        }
    }

    /// The waiter has gone. A place that it was granted and did not take goes to the next.
    pub(super) fn leave(&mut self, ticket: Ticket, now: impl FnOnce() -> u64) {
        if let Some(waiter) = self.remove(ticket) {
            self.aside.gone.extend(waiter.waker);
        } else if self.answers.remove(&ticket) == Some(Ok(())) {
            self.release(now);
        }
    }

    /// One in flight is done.
    #[inline]
    pub(super) fn release(&mut self, now: impl FnOnce() -> u64) {
        debug_assert!(self.in_flight > 0, "a place was given back twice");
        self.in_flight -= 1;
        self.hand_on(now);
    }

    /// One in flight has done its work, and keeps its place until its answer is sent.
    pub(super) fn send(&mut self, now: impl FnOnce() -> u64) {
        self.sending += 1;
        self.hand_on(now);
    }

    /// One whose work was done is sent.
    pub(super) fn release_sent(&mut self, now: impl FnOnce() -> u64) {
        debug_assert!(self.sending > 0, "an answer was sent twice");
        self.sending -= 1;
        self.release(now);
    }

    /// One in flight has done its work. Moves the limit, if it is adaptive.
    pub(super) fn sample(&mut self, started: u64, ended: u64, failed: bool) {
        if let Some(estimator) = &mut self.estimator {
            estimator.record(Sample {
                started,
                ended,
                failed,
                in_flight: self.in_flight - self.sending,
            });
            let limit = estimator.limit();
            self.set_limit(limit, || ended);
        }
    }

    /// One in flight is given up before it is done, since nobody waits for it any more. Moves the limit, if it is adaptive.
    pub(super) fn cut_off(&mut self, started: u64, ended: u64) {
        if let Some(estimator) = &mut self.estimator {
            estimator.cut_off(started, ended, self.in_flight - self.sending);
            let limit = estimator.limit();
            self.set_limit(limit, || ended);
        }
    }

    /// A smaller limit lets those in flight finish, a larger one lets waiters in.
    pub(super) fn set_limit(&mut self, limit: u32, now: impl FnOnce() -> u64) {
        self.limit = limit;
        self.hand_on(now);
    }

    /// What is to be done once the lock is free; `None` in the common case.
    #[inline]
    pub(super) fn take_aside(&mut self) -> Option<Aside> {
        let Aside { wake, gone } = &self.aside;
        (!wake.is_empty() || !gone.is_empty()).then(|| mem::take(&mut self.aside))
    }

    /// Gives free places to waiters that have time left.
    #[inline]
    fn hand_on(&mut self, now: impl FnOnce() -> u64) {
        if !self.line.is_empty() && self.has_room() {
            self.grant(now());
        }
    }

    #[inline(never)]
    fn grant(&mut self, now: u64) {
        self.skip_spent(now);
        while self.has_room()
            && let Some((&ticket, _)) = self.line.first_key_value()
        {
            self.in_flight += 1;
            self.answer(ticket, Ok(()));
        }
    }

    fn skip_spent(&mut self, now: u64) {
        while let Some(&(end, ticket)) = self.ends.first()
            && end <= now
        {
            self.answer(ticket, Err(Shed::QueueTimeout));
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(waiter) = self.remove(ticket) {
            if let Err(reason) = answer {
                self.refuse(reason);
            }
            self.answers.insert(ticket, answer);
            self.aside.wake.extend(waiter.waker);
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.line.remove(&ticket)?;
        self.ends.remove(&(waiter.end, ticket));
        Some(waiter)
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.in_flight - self.sending < self.limit && (self.sending == 0 || self.in_flight < self.ceiling)
    }

    fn is_full(&self) -> bool {
        self.line.len() >= self.queue as usize
    }
}

impl Aside {
    pub(super) fn settle(self) {
        let Self { wake, gone } = self;
        wake.into_iter().for_each(Waker::wake);
        drop(gone);
    }
}
