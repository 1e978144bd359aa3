//! Who is in, who waits, and who is next: no clock and no task, under one lock.

use std::{
    collections::{BTreeMap, HashMap},
    task::{Context, Waker},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{overloaded::Shed, priority::Priority};

/// Those to be woken once the lock is free.
pub(super) type Wakers = SmallVec<[Waker; 1]>;

/// A place in the queue. In the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    priority: Priority,
    number: u64,
}

/// What has become of a place that is not in the queue any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// A slot is taken in its name.
    Granted,
    Shed(Shed),
}

#[derive(Debug)]
struct Waiting {
    /// From here on it is not served any more.
    until: Instant,
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct State {
    limit: u32,
    in_flight: u32,
    places: u32,
    queue: BTreeMap<Place, Waiting>,
    /// Those that were called, and have not come yet.
    called: HashMap<u64, Called>,
    next: u64,
    shed: [u64; Shed::ALL.len()],
}

impl State {
    pub(super) fn new(limit: u32, places: u32) -> Self {
        Self {
            limit,
            in_flight: 0,
            places,
            queue: BTreeMap::new(),
            called: HashMap::new(),
            next: 0,
            shed: [0; Shed::ALL.len()],
        }
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn queued(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    pub(super) const fn shed(&self, reason: Shed) -> u64 {
        self.shed[reason as usize]
    }

    /// Takes a free slot. Nobody passes those who wait.
    pub(super) fn try_enter(&mut self) -> bool {
        let is_free = self.in_flight < self.limit && self.queue.is_empty();
        self.in_flight += u32::from(is_free);
        is_free
    }

    /// Takes a place in the queue, if need be that of the newest with the lowest priority, who is woken to hear of it.
    pub(super) fn enqueue(&mut self, priority: Priority, until: Instant, wakers: &mut Wakers) -> Result<Place, Shed> {
        if self.queued() >= self.places {
            let last = self.queue.last_key_value().map(|(place, _)| *place);
            let Some(last) = last.filter(|last| priority < last.priority) else {
                return Err(self.count(Shed::QueueFull));
            };
            self.call(last, Called::Shed(Shed::Displaced), wakers);
        }
        let number = self.next;
        self.next += 1;
        let place = Place { priority, number };
        self.queue.insert(place, Waiting { until, waker: None });
        Ok(place)
    }

    /// What has become of a place; `None` while it waits, and then it is woken when that changes.
    pub(super) fn poll(&mut self, place: Place, cx: &Context<'_>) -> Option<Called> {
        if let Some(waiting) = self.queue.get_mut(&place) {
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return None;
        }
        self.called.remove(&place.number)
    }

    /// Gives a place up. Whoever was granted a slot meanwhile has it, and must free it if it is of no use any more.
    pub(super) fn leave(&mut self, place: Place) -> Option<Called> {
        self.queue.remove(&place);
        self.called.remove(&place.number)
    }

    pub(super) fn count(&mut self, reason: Shed) -> Shed {
        self.shed[reason as usize] += 1;
        reason
    }

    /// Frees a slot, and calls whoever is next.
    pub(super) fn exit(&mut self, now: impl FnOnce() -> Instant, wakers: &mut Wakers) {
        self.in_flight -= 1;
        self.admit(now, wakers);
    }

    /// Sets how many may be in. Those above a lower limit go on to their end.
    pub(super) fn set_limit(&mut self, limit: u32, now: impl FnOnce() -> Instant, wakers: &mut Wakers) {
        self.limit = limit;
        self.admit(now, wakers);
    }

    /// Grants free slots to those who are next and still have time.
    fn admit(&mut self, now: impl FnOnce() -> Instant, wakers: &mut Wakers) {
        if self.queue.is_empty() {
            return;
        }
        let now = now();
        while self.in_flight < self.limit
            && let Some((&place, waiting)) = self.queue.first_key_value()
        {
            let called = if now < waiting.until {
                self.in_flight += 1;
                Called::Granted
            } else {
                Called::Shed(Shed::QueueTimeout)
            };
            self.call(place, called, wakers);
        }
    }

    /// Whether nobody is in, waits, or has yet to hear that it was called.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty() && self.called.is_empty()
    }

    fn call(&mut self, place: Place, called: Called, wakers: &mut Wakers) {
        let waiting = self.queue.remove(&place);
        wakers.extend(waiting.and_then(|waiting| waiting.waker));
        self.called.insert(place.number, called);
        if let Called::Shed(reason) = called {
            self.count(reason);
        }
    }
}
