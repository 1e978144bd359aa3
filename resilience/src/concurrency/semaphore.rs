//! The state machine under its lock, and the hold of a waiter on its place in the queue.

use std::task::{Poll, Waker};

use super::{
    adaptive::Adaptive,
    error::Shed,
    priority::Priority,
    state::{Answer, Arrival, State, Ticket},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Counts who is in flight. The lock is never held over a waker.
#[derive(Debug)]
pub(super) struct Semaphore {
    state: Mutex<State>,
}

/// One request in the queue. Dropped, it leaves, and hands on what it was granted in the meantime.
#[derive(Debug)]
pub(super) struct Waiting<'a, N: Fn() -> u64> {
    semaphore: &'a Semaphore,
    now: N,
    /// `None` once it has its answer.
    ticket: Option<Ticket>,
}

impl Semaphore {
    pub(super) fn new(limit: u32, queue: u32, adaptive: Option<Adaptive>) -> Self {
        Self {
            state: Mutex::new(State::new(limit, queue, adaptive)),
        }
    }

    /// Takes a place if one is free.
    #[inline]
    pub(super) fn admit(&self) -> bool {
        self.lock().admit()
    }

    /// Looks at the state, or changes it: woken is who was waiting for that.
    #[inline]
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let aside = state.take_aside();
        drop(state);
        if let Some(aside) = aside {
            aside.settle();
        }
        result
    }

    /// Takes a place (`None`), or one in the queue for as long as `patience` nanoseconds.
    pub(super) fn queue<N: Fn() -> u64>(
        &self,
        priority: Priority,
        patience: u64,
        now: N,
    ) -> Result<Option<Waiting<'_, N>>, Shed> {
        let arrival = self.with(|state| {
            // Read under the lock, so that times are in the order of the arrivals.
            let arrived = now();
            state.arrive(priority, arrived, arrived.saturating_add(patience))
        })?;
        Ok(match arrival {
            Arrival::Admitted => None,
            Arrival::Queued(ticket) => Some(Waiting {
                semaphore: self,
                now,
                ticket: Some(ticket),
            }),
        })
    }

    /// Gives a place back, and hands it on.
    #[inline]
    pub(super) fn release(&self, now: impl FnOnce() -> u64) {
        self.with(|state| state.release(now));
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock is left half done by a panic: only cloning a waker or reading the clock could cause one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Fn() -> u64> Waiting<'_, N> {
    /// Ready with the answer, once: `Ok` means that a place is held. Pending for ever after that.
    pub(super) fn poll(&mut self, waker: &Waker) -> Poll<Answer> {
        let Some(ticket) = self.ticket else {
            return Poll::Pending;
        };
        match self.semaphore.with(|state| state.poll(ticket, waker)) {
            None => Poll::Pending,
            Some(answer) => {
                self.ticket = None;
                Poll::Ready(answer)
            }
        }
    }

    /// Its time is over: the answer, if there is one by now.
    pub(super) fn expire(&mut self) -> Answer {
        match self.ticket.take() {
            Some(ticket) => self.semaphore.with(|state| state.expire(ticket)),
            None => Err(Shed::QueueTimeout),
        }
    }
}

impl<N: Fn() -> u64> Drop for Waiting<'_, N> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.semaphore.with(|state| state.leave(ticket, &self.now));
        }
    }
}
