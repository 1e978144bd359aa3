//! What the handles, the driver and the breakers of one runtime share.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast, watch},
    time::{Instant, timeout},
};

use super::{
    SharedEvent, Sharing,
    contact::{Contact, Turn},
};
use crate::{
    breaker::{CircuitBreaker, Held, Order},
    clock::nanos,
    store::{
        BreakerBoard, Store, StoreError,
        board::{At, Board, Circuit, Entry, HoldState},
    },
};

/// How long what the first look has said counts as fresh.
const BOOTSTRAP_FRESH: Duration = Duration::from_secs(30);
/// How long what a later look has said does.
const FETCH_FRESH: Duration = Duration::from_secs(3);
/// How long a state check waits for the first look.
const CHECK_BUDGET: Duration = Duration::from_millis(500);
/// Events that a slow reader may be late by.
const EVENTS_KEPT: usize = 64;

pub(crate) struct Core {
    sharing: Sharing,
    instance: String,
    /// Has a board: the builder has seen to that.
    store: Arc<dyn Store>,
    /// Tells the driver that there is something to do.
    pub(super) wake: Arc<Notify>,
    pub(super) look_now: AtomicBool,
    contact: Mutex<Contact>,
    known: RwLock<Option<Arc<Known>>>,
    /// Whether the first look was obeyed.
    looked: watch::Sender<bool>,
    breakers: Mutex<Breakers>,
    events: broadcast::Sender<(Option<Arc<str>>, SharedEvent)>,
}

/// The breakers that have joined.
#[derive(Default)]
struct Breakers {
    by_name: BTreeMap<String, CircuitBreaker>,
    /// Nobody speaks for them any more.
    is_over: bool,
}

/// What the last look at the board has said.
pub(super) struct Known {
    pub(super) entries: BTreeMap<String, Entry>,
    /// Instances that were alive.
    pub(super) instances: u32,
    pub(super) at: Instant,
    is_first: bool,
}

impl Known {
    /// Whether it is worth nothing better while no reason is known to look again.
    pub(super) fn is_fresh(&self) -> bool {
        let fresh_for = if self.is_first { BOOTSTRAP_FRESH } else { FETCH_FRESH };
        self.at.elapsed() < fresh_for
    }
}

impl Core {
    pub(crate) fn new(sharing: Sharing, store: Arc<dyn Store>) -> Self {
        Self {
            instance: sharing.instance_id(),
            sharing,
            store,
            wake: Arc::default(),
            look_now: AtomicBool::new(false),
            contact: Mutex::default(),
            known: RwLock::default(),
            looked: watch::Sender::new(false),
            breakers: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_KEPT),
        }
    }

    pub(super) fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    pub(crate) fn system(&self) -> &str {
        &self.sharing.system
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    pub(super) fn at<'a>(&'a self, name: &'a str) -> At<'a> {
        At {
            system: self.system(),
            name,
            instance: &self.instance,
        }
    }

    pub(super) fn board(&self) -> &dyn BreakerBoard {
        self.store.board().expect("the builder refuses stores without a board")
    }

    /// Takes a breaker in, and what is known of it at once: its first call must not be the one that finds out.
    pub(crate) fn join(&self, breaker: &CircuitBreaker) {
        let mut breakers = self.breakers();
        if breakers.is_over || breakers.by_name.contains_key(breaker.name()) {
            return;
        }
        breaker.join(Arc::clone(&self.wake));
        if let Some(known) = self.known()
            && let Some(entry) = known.entries.get(breaker.name())
            && let Some(order) = first_order(entry, known.at.elapsed())
        {
            breaker.obey(breaker.news().generation, order);
        }
        breakers.by_name.insert(breaker.name().to_owned(), breaker.clone());
        drop(breakers);
        self.wake.notify_one();
    }

    /// Lets all breakers go: each decides by itself again.
    pub(super) fn part_all(&self) {
        let breakers = {
            let mut breakers = self.breakers();
            breakers.is_over = true;
            std::mem::take(&mut breakers.by_name)
        };
        breakers.values().for_each(CircuitBreaker::part);
    }

    pub(super) fn joined(&self) -> Vec<CircuitBreaker> {
        self.breakers().by_name.values().cloned().collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.breakers().by_name.keys().cloned().collect()
    }

    fn breakers(&self) -> MutexGuard<'_, Breakers> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A look has been answered.
    pub(super) fn learn(&self, board: Board) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_first = known.is_none();
        *known = Some(Arc::new(Known {
            entries: board
                .entries
                .into_iter()
                .map(|entry| (entry.name.clone(), entry))
                .collect(),
            instances: board.instances,
            at: Instant::now(),
            is_first,
        }));
    }

    /// The breakers here stand as what was [learnt](Self::learn) has it.
    pub(super) fn obeyed(&self) {
        self.looked.send_replace(true);
    }

    /// What one answer says of one breaker, until the next look.
    pub(super) fn learn_of(&self, entry: &Entry) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &*known {
            let mut entries = before.entries.clone();
            entries.insert(entry.name.clone(), entry.clone());
            *known = Some(Arc::new(Known { entries, ..**before }));
        }
    }

    /// What is known, at once if anything is: what is stale is served while it is looked up. With nothing known it waits for
    /// the first look, within its budget; the look goes on after that.
    pub(super) async fn check(&self) -> Option<Arc<Known>> {
        let mut looked = self.looked.subscribe();
        // Known is not obeyed yet: in between, a breaker would still say what it said before.
        let is_obeyed = *looked.borrow();
        if is_obeyed && let Some(known) = self.known() {
            if !known.is_fresh() {
                self.look_soon();
            }
            return Some(known);
        }
        if !self.contact().may_ask(Instant::now()) && self.contact().is_degraded() {
            return None;
        }
        self.look_soon();
        // The sender is here: this ends with a look, or not at all.
        _ = timeout(CHECK_BUDGET, looked.wait_for(|is_obeyed| *is_obeyed)).await;
        self.known()
    }

    pub(super) fn look_soon(&self) {
        if !self.look_now.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    /// The store has spoken by itself.
    pub(super) fn pushed(&self) {
        self.contact().pushed();
        self.look_now.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn is_degraded(&self) -> bool {
        self.contact().is_degraded()
    }

    /// Whether anybody speaks for the breakers, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.breakers().is_over
    }

    pub(super) fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answered(&self) {
        let turn = self.contact().answered();
        self.tell_turn(turn, None);
    }

    pub(super) fn failed(&self, error: &StoreError) {
        let turn = self.contact().failed(Instant::now(), error.is_denied());
        self.tell_turn(turn, Some(error));
        tracing::debug!(system = self.system(), %error, "the store has not answered about shared breakers");
    }

    fn tell_turn(&self, turn: Option<Turn>, error: Option<&StoreError>) {
        let system = self.system();
        let error = error.map(tracing::field::display);
        match turn {
            None => {}
            Some(Turn::Failing) => {
                tracing::warn!(system, error, "shared breakers cannot be looked up: trying again");
            }
            Some(Turn::Degraded) => {
                tracing::warn!(
                    system,
                    error,
                    "shared breakers go by what is known, each instance for itself, and the store is left in peace for 30 s"
                );
                self.tell(None, SharedEvent::Degraded);
            }
            Some(Turn::Denied) => {
                tracing::error!(
                    system,
                    error,
                    "the store refuses the credentials for shared breakers: each instance goes by itself, and they are tried once a minute"
                );
                self.tell(None, SharedEvent::Degraded);
            }
            Some(Turn::Restored) => {
                tracing::info!(system, "shared breakers are looked up again");
                self.tell(None, SharedEvent::Restored);
            }
        }
    }

    /// To the readers of one breaker's events, or of all.
    pub(super) fn tell(&self, breaker: Option<&str>, event: SharedEvent) {
        // An error only says that nobody listens.
        _ = self.events.send((breaker.map(Into::into), event));
    }

    pub(super) fn events(&self) -> broadcast::Receiver<(Option<Arc<str>>, SharedEvent)> {
        self.events.subscribe()
    }
}

/// What an entry asks of a breaker that has just been made.
fn first_order(entry: &Entry, age: Duration) -> Option<Order> {
    if let Some(hold) = &entry.hold {
        let is_over = hold.ends_in.is_some_and(|ends_in| ends_in <= age);
        return (!is_over).then_some(Order::Hold(match hold.state {
            HoldState::Open => Held::Open,
            HoldState::Closed => Held::Closed,
        }));
    }
    match &entry.circuit {
        Circuit::Open(opening) => Some(Order::Open {
            due_in: nanos(opening.due_in.saturating_sub(age)),
            failed_probes: opening.failed_probes,
        }),
        Circuit::Unknown | Circuit::Unreadable | Circuit::Closed(_) => None,
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("sharing", &self.sharing)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
