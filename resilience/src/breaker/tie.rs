//! The way between a breaker and whoever speaks with other instances for it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use super::{CircuitBreaker, News, Order, Shared};

impl CircuitBreaker {
    /// Others have a say from now on; `wake` is told when there is news for them.
    pub(crate) fn join(&self, wake: Arc<Notify>) {
        self.shared.machine.join();
        self.shared.wanted.store(false, Ordering::Relaxed);
        self.shared.wake.store(Some(wake));
    }

    /// On its own again: nobody's orders hold.
    pub(crate) fn part(&self) {
        self.shared.wake.store(None);
        self.shared.machine.part();
        self.shared.tell_readers();
    }

    pub(crate) fn news(&self) -> News {
        self.shared.machine.news(self.now())
    }

    /// Obeys, unless it has changed since `generation`. Answers its generation after that.
    pub(crate) fn obey(&self, generation: u64, order: Order) -> Option<u64> {
        let obeyed = self.shared.machine.obey(generation, order, self.now())?;
        self.shared.tell_readers();
        Some(obeyed)
    }

    /// Whether a call was refused since this was last [forgotten](Self::forget_wanted): then somebody here wants it closed.
    pub(crate) fn is_wanted(&self) -> bool {
        self.shared.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_wanted(&self) {
        self.shared.wanted.store(false, Ordering::Relaxed);
    }

    /// Nanoseconds of the clock that it lives by.
    pub(crate) fn now(&self) -> u64 {
        self.shared.clock.nanos()
    }

    pub(crate) fn probe_lease(&self) -> Duration {
        self.shared.machine.config().probe_lease()
    }
}

impl Shared {
    /// A transition of its own.
    #[cold]
    pub(super) fn publish(&self) {
        self.tell_readers();
        if let Some(wake) = &*self.wake.load() {
            wake.notify_one();
        }
    }

    /// The first refusal after a while is worth a word to the others; all that follow cost a look.
    #[inline]
    pub(super) fn refused(&self) {
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Relaxed);
            if let Some(wake) = &*self.wake.load() {
                wake.notify_one();
            }
        }
    }

    fn tell_readers(&self) {
        // An error only says that nobody listens.
        self.machine
            .publish(|transition| drop(self.events.send(transition.named(self.name.clone()))));
    }
}
