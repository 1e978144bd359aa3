//! Breakers that stand in front of the store, and the prober that closes them again.
//!
//! No request ever pays for a probe: while such a breaker is open or half-open every admission is refused without a
//! look at the clock, and a background task asks the store once `open_for` has passed. The task lives only while its
//! breaker is not closed, and ends with the runtime.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
    time::{Instant, timeout_at},
};

use crate::{
    breaker::{BreakerConfig, BreakerEvent, CircuitBreaker, Permit, State},
    policy::BreakerChoice,
    store::{Probe, Store, StoreErrorKind, Timing},
};

/// How long one probe may take: longer than a guard's deadline, since it may have to connect first.
const PROBE_DEADLINE: Duration = Duration::from_millis(500);

/// A guard's question to the store: which breaker it asks behind when there is one per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Auth,
    Flag,
    RateLimit,
    Lockout,
}

impl Operation {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Flag => "flag",
            Self::RateLimit => "rate_limit",
            Self::Lockout => "lockout",
        }
    }

    pub(crate) const ALL: [Self; 4] = [Self::Auth, Self::Flag, Self::RateLimit, Self::Lockout];

    const fn probe(self) -> Probe {
        match self {
            Self::Auth | Self::Flag => Probe::Read,
            Self::RateLimit | Self::Lockout => Probe::Write,
        }
    }
}

/// Name of the breaker that all operations share.
pub(crate) const SHARED: &str = "store";

/// All breakers in front of one store, by name.
#[derive(Debug)]
pub(crate) struct StoreBreakers {
    config: BreakerConfig,
    events: broadcast::Sender<BreakerEvent>,
    store: Arc<dyn Store>,
    /// Its receivers live in the probers: when this end goes, so do they.
    alive: watch::Sender<()>,
    by_name: Mutex<HashMap<String, Arc<StoreBreaker>>>,
}

impl StoreBreakers {
    /// `config` must have been validated.
    pub(crate) fn new(config: BreakerConfig, store: Arc<dyn Store>) -> Self {
        Self {
            config,
            events: broadcast::channel(64).0,
            store,
            alive: watch::channel(()).0,
            by_name: Mutex::default(),
        }
    }

    /// The breaker for an operation under this choice.
    pub(crate) fn for_operation(&self, choice: BreakerChoice, operation: Operation) -> Arc<StoreBreaker> {
        match choice {
            BreakerChoice::Shared => self.named(SHARED, Probe::Write),
            BreakerChoice::PerOperation => self.named(operation.name(), operation.probe()),
            BreakerChoice::Named(name) => self.named(name, Probe::Write),
        }
    }

    /// Whether the breaker for an operation under this choice is closed, or not there to be anything else.
    pub(crate) fn is_closed(&self, choice: BreakerChoice, operation: Operation) -> bool {
        let name = match choice {
            BreakerChoice::Shared => SHARED,
            BreakerChoice::PerOperation => operation.name(),
            BreakerChoice::Named(name) => name,
        };
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name
            .get(name)
            .is_none_or(|breaker| breaker.breaker.state() == State::Closed)
    }

    fn named(&self, name: &str, probe: Probe) -> Arc<StoreBreaker> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = by_name.get(name) {
            return Arc::clone(breaker);
        }
        let breaker = CircuitBreaker::new(name, self.config.clone())
            .expect("the builder has validated the settings")
            .supervised()
            .with_events(self.events.clone());
        let breaker = Arc::new(StoreBreaker {
            breaker,
            probe,
            timing: self.store.timing(),
            store: Arc::downgrade(&self.store),
            probing: AtomicBool::new(false),
            alive: self.alive.subscribe(),
        });
        by_name.insert(name.to_owned(), Arc::clone(&breaker));
        breaker
    }

    /// All breakers that policies use, sorted by name.
    pub(crate) fn all(&self) -> Vec<CircuitBreaker> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name.values().map(|breaker| breaker.breaker.clone()).collect();
        drop(by_name);
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<BreakerEvent> {
        self.events.subscribe()
    }
}

/// One breaker in front of the store.
#[derive(Debug)]
pub(crate) struct StoreBreaker {
    breaker: CircuitBreaker,
    probe: Probe,
    timing: Timing,
    store: Weak<dyn Store>,
    probing: AtomicBool,
    alive: watch::Receiver<()>,
}

impl StoreBreaker {
    pub(crate) fn name(&self) -> &str {
        self.breaker.name()
    }

    /// How the store behind it keeps time.
    pub(crate) const fn timing(&self) -> Timing {
        self.timing
    }

    /// Admission for one operation; `None` while the breaker is not closed.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Permit<'_>> {
        match self.breaker.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_open) => {
                // The tokio runtime that held the prober may have gone while this breaker lives on. A cheap look is enough:
                // the next refusal looks again.
                if !self.probing.load(Ordering::Relaxed) {
                    self.ensure_prober();
                }
                None
            }
        }
    }

    /// Counts a failure; if it opens the breaker, the prober starts.
    pub(crate) fn fail(self: &Arc<Self>, permit: Permit<'_>) {
        if permit.failure() {
            tracing::warn!(
                breaker = self.name(),
                "the breaker has opened: guards answer without the store until it serves"
            );
            self.ensure_prober();
        }
    }

    fn ensure_prober(self: &Arc<Self>) {
        // Without a tokio runtime there is nobody to ask; the next refusal inside one tries again.
        let Ok(handle) = Handle::try_current() else { return };
        if !self.probing.swap(true, Ordering::SeqCst) {
            handle.spawn(Prober(Some(Arc::clone(self))).run());
        }
    }
}

/// The one task that may ask the store while a breaker is not closed. Holds its breaker's mark until it ends, however
/// it ends.
struct Prober(Option<Arc<StoreBreaker>>);

impl Prober {
    async fn run(mut self) {
        let Some(breaker) = self.0.clone() else { return };
        let mut alive = breaker.alive.clone();
        tokio::select! {
            // Ends when the runtime has dropped the sender; nobody ever sends.
            _gone = alive.changed() => {}
            () = self.probe_while_marked(&breaker) => {}
        }
    }

    async fn probe_while_marked(&mut self, breaker: &StoreBreaker) {
        while self.0.is_some() {
            breaker.probe_until_closed().await;
            // The breaker may have opened again since the last look, by a failure that still saw the mark. With no
            // traffic nobody else would notice. Swapped, not stored: of two swaps the later sees what came before the
            // earlier, so that either that failure finds the mark gone or this task finds the breaker open.
            breaker.probing.swap(false, Ordering::SeqCst);
            let reopened = breaker.breaker.probe_in().is_some();
            if !reopened || breaker.probing.swap(true, Ordering::SeqCst) {
                self.0 = None;
            }
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(breaker) = &self.0 {
            breaker.probing.store(false, Ordering::SeqCst);
        }
    }
}

impl StoreBreaker {
    async fn probe_until_closed(&self) {
        let breaker = &self.breaker;
        while let Some(due_in) = breaker.probe_in() {
            tokio::time::sleep(due_in).await;
            let Ok(permit) = breaker.try_acquire_probe() else {
                // A timer's granularity before its time, or somebody else's doing.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            };
            let Some(store) = self.store.upgrade() else { return };
            let deadline = Instant::now() + PROBE_DEADLINE;
            match timeout_at(deadline, store.probe(self.probe, deadline)).await {
                Ok(Ok(())) => {
                    permit.success();
                    if breaker.state() == State::Closed {
                        tracing::info!(
                            breaker = breaker.name(),
                            "the breaker has closed: the store serves again"
                        );
                    }
                }
                Ok(Err(error)) => {
                    tracing::debug!(breaker = breaker.name(), %error, "the store answered a probe with an error");
                    // A store that answers nonsense is a store that answers, here as for the guards: a probe whose key
                    // is forbidden must not keep the breaker open for ever.
                    match error.kind() {
                        StoreErrorKind::Answered => permit.success(),
                        _ => _ = permit.failure(),
                    }
                }
                Err(_elapsed) => {
                    tracing::debug!(breaker = breaker.name(), "the store does not answer a probe");
                    permit.failure();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn all_breakers_tell_one_channel_what_happens_to_them() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let breakers = StoreBreakers::new(BreakerConfig::default().with_failures_in_a_row(1), store);
        let mut events = breakers.events();
        for (choice, name) in [(BreakerChoice::Shared, SHARED), (BreakerChoice::PerOperation, "auth")] {
            let breaker = breakers.for_operation(choice, Operation::Auth);
            breaker.fail(breaker.admit().expect("it is closed"));
            // The prober asks the store, which is well.
            for to in [State::Open, State::HalfOpen, State::Closed] {
                let event = timeout(Duration::from_secs(60), events.recv()).await;
                let event = event.expect("it is told in time").expect("nothing was missed");
                assert_eq!((&*event.breaker, event.to), (name, to));
            }
        }
    }
}
