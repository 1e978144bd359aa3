//! The lock around the state, and what holds a slot or a place.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::{Instant, timeout_at};

use super::{
    adaptive::Limiter,
    overloaded::Shed,
    priority::Priority,
    state::{Called, Place, State, Wakers},
    sync::{Mutex, MutexGuard, PoisonError},
};
use crate::{breaker::Outcome, clock::Clock};

/// The slots of one limit.
pub(super) struct Slots {
    state: Mutex<State>,
    adaptive: Option<(Mutex<Limiter>, Clock)>,
}

impl Slots {
    pub(super) fn new(state: State, adaptive: Option<(Limiter, Clock)>) -> Self {
        Self {
            state: Mutex::new(state),
            adaptive: adaptive.map(|(limiter, clock)| (Mutex::new(limiter), clock)),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes whom that concerns once the lock is free.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::new();
        let changed = change(&mut self.state(), &mut wakers);
        wakers.into_iter().for_each(std::task::Waker::wake);
        changed
    }

    /// A slot, if one is free and nobody waits.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Slot> {
        let entered = self.state().try_enter();
        entered.then(|| Slot::new(Arc::clone(self)))
    }

    pub(super) fn refuse(&self) -> Shed {
        self.state().count(Shed::QueueFull)
    }

    /// A slot, at once or after a wait.
    pub(super) async fn enter(
        self: &Arc<Self>,
        priority: Priority,
        until: impl FnOnce() -> Instant,
    ) -> Result<Slot, Shed> {
        if let Some(slot) = self.try_enter() {
            return Ok(slot);
        }
        let until = until();
        let place = self.change(|state, wakers| {
            // Between the two looks a slot may have become free.
            if state.try_enter() {
                return Ok(None);
            }
            state.enqueue(priority, until, wakers).map(Some)
        })?;
        let Some(place) = place else {
            return Ok(Slot::new(Arc::clone(self)));
        };
        let mut queued = Queued {
            slots: Arc::clone(self),
            place: Some(place),
        };
        match timeout_at(until, poll_fn(|cx| queued.poll(cx))).await {
            Ok(called) => called,
            Err(_elapsed) => queued.out_of_time(),
        }
    }

    /// Measures the work that a slot was for.
    fn learn(&self, started: u64, outcome: Outcome) {
        let Some((limiter, clock)) = &self.adaptive else {
            return;
        };
        let now = clock.nanos();
        let in_flight = self.state().in_flight();
        let limit = limiter.lock().unwrap_or_else(PoisonError::into_inner).learn(
            now,
            now.saturating_sub(started),
            in_flight,
            outcome,
        );
        if let Some(limit) = limit {
            self.change(|state, wakers| state.set_limit(limit, Instant::now, wakers));
        }
    }
}

/// Leave to work, for as long as this is held: dropping it frees the slot, and lets whoever is next in.
#[must_use = "a slot that is dropped is free"]
pub struct Slot {
    slots: Arc<Slots>,
    /// When the work began, if anybody measures it.
    started: Option<u64>,
}

impl Slot {
    fn new(slots: Arc<Slots>) -> Self {
        let started = slots.adaptive.as_ref().map(|(_, clock)| clock.nanos());
        Self { slots, started }
    }

    /// The work is done, though the slot is still held: an answer is to be sent, which takes as long as its reader likes.
    ///
    /// An adaptive limit learns how long a [`Success`](Outcome::Success) took, and from a [`Failure`](Outcome::Failure), such
    /// as a timeout, that there is too much work. [`Neutral`](Outcome::Neutral) says nothing, nor does a slot that is
    /// dropped without a word. Only the first call counts.
    pub fn served(&mut self, outcome: Outcome) {
        if let Some(started) = self.started.take() {
            self.slots.learn(started, outcome);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.change(|state, wakers| state.exit(Instant::now, wakers));
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// A place in the queue. Dropping it gives the place up, and hands on a slot that was granted meanwhile.
struct Queued {
    slots: Arc<Slots>,
    place: Option<Place>,
}

impl Queued {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<Slot, Shed>> {
        let place = self.place.expect("polled after it was called");
        let called = self.slots.state().poll(place, cx);
        match called {
            None => Poll::Pending,
            Some(called) => {
                self.place = None;
                Poll::Ready(self.came(called))
            }
        }
    }

    /// Nobody called in time, or only just.
    fn out_of_time(&mut self) -> Result<Slot, Shed> {
        let left = self.place.take().map(|place| {
            let mut state = self.slots.state();
            let called = state.leave(place);
            called.unwrap_or_else(|| Called::Shed(state.count(Shed::QueueTimeout)))
        });
        self.came(left.unwrap_or(Called::Shed(Shed::QueueTimeout)))
    }

    fn came(&self, called: Called) -> Result<Slot, Shed> {
        match called {
            Called::Granted => Ok(Slot::new(Arc::clone(&self.slots))),
            Called::Shed(reason) => Err(reason),
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.slots.change(|state, wakers| {
                if state.leave(place) == Some(Called::Granted) {
                    state.exit(Instant::now, wakers);
                }
            });
        }
    }
}
