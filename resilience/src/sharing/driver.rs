//! The one task of a runtime that speaks with the board. Calls never do.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    Core, SharedEvent,
    replica::{Ask, Replica, Terms},
};
use crate::{
    breaker::{CircuitBreaker, Held, News, Order, State},
    store::{
        StoreError, StoreErrorKind,
        board::{Entry, Presence, Trip},
    },
};

/// How often the board is looked at without a push: what is pushed and gets lost is late by this, and by one answer.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one question may take. Longer than a state check waits, so that its answer is there for the next one.
const ASK_DEADLINE: Duration = Duration::from_secs(1);
/// How long it takes to listen for pushes.
const LISTEN_DEADLINE: Duration = Duration::from_secs(2);
/// Waits between attempts to listen: the first, and the longest.
const LISTEN_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// And after one that was refused.
const LISTEN_DENIED: Duration = Duration::from_secs(60);

/// Ends the task with the runtime.
#[derive(Debug)]
pub(crate) struct Driver(AbortHandle);

impl Driver {
    /// Needs a tokio runtime around it.
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let core = Parting(Arc::clone(core));
        let task = tokio::spawn(async move {
            let mut turns = Turns::default();
            tokio::join!(listen(&core.0), async {
                loop {
                    turns.turn(&core.0).await;
                }
            });
        });
        Self(task.abort_handle())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// However the task ends, nobody waits for it any more.
struct Parting(Arc<Core>);

impl Drop for Parting {
    fn drop(&mut self) {
        self.0.part_all();
    }
}

/// Hears what the store says by itself. What it says is only that it is worth looking.
async fn listen(core: &Core) {
    let (first, longest) = LISTEN_AGAIN;
    let mut wait = first;
    loop {
        let deadline = Instant::now() + LISTEN_DEADLINE;
        let listening = timeout_at(deadline, core.board().changes(core.system(), deadline)).await;
        let pause = match listening {
            Ok(Ok(mut changes)) => {
                let start = Instant::now();
                // Whoever greets us is back, and what was said before is lost.
                core.pushed();
                while changes.next().await.is_some() {
                    core.pushed();
                }
                tracing::debug!(
                    system = core.system(),
                    "changes of shared breakers are no longer pushed"
                );
                // A store that greets and hangs up all the time is not well: it would never be left in peace.
                if start.elapsed() >= longest {
                    wait = first;
                }
                wait
            }
            Ok(Err(error)) => {
                tracing::debug!(system = core.system(), %error, "changes of shared breakers are not pushed");
                if error.is_denied() || error.kind() == StoreErrorKind::Answered {
                    LISTEN_DENIED
                } else {
                    wait
                }
            }
            Err(_late) => wait,
        };
        // Not all instances of a fleet in step.
        sleep(pause.mul_f64(1.0 - fastrand::f64() / 4.0)).await;
        wait = (wait * 2).min(longest);
    }
}

/// What the task knows between its turns.
#[derive(Debug, Default)]
struct Turns {
    replicas: BTreeMap<String, Replica>,
    look_at: Option<Instant>,
}

impl Turns {
    /// Says what there is to say, looks if it is time, and waits for the next reason to do either.
    async fn turn(&mut self, core: &Core) {
        let breakers = core.joined();
        for breaker in &breakers {
            self.speak(core, breaker).await;
        }
        if self.is_time_to_look(core) && self.look(core).await {
            for breaker in &breakers {
                self.speak(core, breaker).await;
            }
        }
        let next = self.next_turn(core);
        tokio::select! {
            () = core.wake.notified() => {}
            () = sleep_until(next) => {}
        }
    }

    fn is_time_to_look(&self, core: &Core) -> bool {
        let now = Instant::now();
        let asked_for = core.look_now.load(Ordering::Relaxed);
        core.contact().may_ask(now) && (asked_for || self.look_at.is_none_or(|at| at <= now))
    }

    /// Looks at the whole board, and lets all breakers hear of it. Whether it has answered.
    async fn look(&mut self, core: &Core) -> bool {
        // Before the question: who asks for a look from now on may mean something newer.
        core.look_now.store(false, Ordering::Relaxed);
        self.look_at = Some(Instant::now() + LOOK_EVERY);
        let names = core.names();
        // The first look only adopts: it leaves no trace.
        let presence = core.known().is_some().then(|| Presence {
            instance: core.instance(),
            names: &names,
        });
        let Some(board) = ask(core, |deadline| core.board().look(core.system(), presence, deadline)).await else {
            // Again as soon as it may be asked: what is missed is missed until then.
            self.look_at = core.contact().not_before();
            return false;
        };
        core.learn(board.clone());
        let heard: BTreeMap<_, _> = board.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
        for breaker in core.joined() {
            let unknown;
            let entry = match heard.get(breaker.name()) {
                Some(entry) => *entry,
                None => {
                    unknown = Entry::unknown(breaker.name());
                    &unknown
                }
            };
            let replica = self.replica(&breaker);
            replica.nudge();
            hear(core, &breaker, replica, entry);
            let news = breaker.news();
            if let Some(order) = replica.patience(&news, breaker.is_wanted(), breaker.now()) {
                breaker.obey(news.generation, order);
            }
        }
        core.obeyed();
        true
    }

    fn replica(&mut self, breaker: &CircuitBreaker) -> &mut Replica {
        self.replicas.entry(breaker.name().to_owned()).or_default()
    }

    /// Asks the board all that one breaker has to ask.
    async fn speak(&mut self, core: &Core, breaker: &CircuitBreaker) {
        let terms = Terms {
            probe_lease: breaker.probe_lease(),
            window: core.sharing().window,
        };
        let replica = self.replica(breaker);
        loop {
            let news = breaker.news();
            if news.state == State::Closed {
                breaker.forget_wanted();
            }
            let now = breaker.now();
            if !core.contact().may_ask(Instant::now()) {
                break;
            }
            let Some(question) = replica.ask(&news, breaker.is_wanted(), now, &terms) else {
                break;
            };
            if !put(core, breaker, replica, &question, &news, &terms).await {
                break;
            }
        }
        let news = breaker.news();
        let is_cut_off = core.contact().is_cut_off(Instant::now());
        if let Some(order) = replica.unheard(&news, breaker.now(), is_cut_off)
            && let Some(generation) = breaker.obey(news.generation, order)
        {
            replica.went_on(order, generation);
            if order == Order::Release {
                core.tell(Some(breaker.name()), SharedEvent::Released);
            }
        }
    }

    fn next_turn(&mut self, core: &Core) -> Instant {
        let now = Instant::now();
        let mut next = self.look_at.unwrap_or(now);
        for breaker in core.joined() {
            let news = breaker.news();
            let is_wanted = breaker.is_wanted();
            if let Some(at) = self.replica(&breaker).wakes_at(&news, is_wanted) {
                let wait = Duration::from_nanos(at.saturating_sub(breaker.now()));
                next = next.min(now.checked_add(wait).unwrap_or(next));
            }
        }
        let not_before = core.contact().not_before();
        match not_before {
            // An operator's order may end meanwhile, by the local clock.
            Some(start) if start > now => start.min(now + LOOK_EVERY),
            _ => next,
        }
    }
}

/// Asks the board one thing, and lets the breaker hear the answer. Whether there was one.
async fn put(
    core: &Core,
    breaker: &CircuitBreaker,
    replica: &mut Replica,
    question: &Ask,
    news: &News,
    terms: &Terms,
) -> bool {
    let at = core.at(breaker.name());
    let board = core.board();
    let asked_at = breaker.now();
    let reason = news.cause.map(|cause| cause.to_string()).unwrap_or_default();
    let new_opening = format!("{}-{}", core.instance(), news.generation);
    let trip = |opening, round, since| Trip {
        opening,
        open_for: news.open_for.unwrap_or_default(),
        failed_probes: news.failed_probes,
        since,
        round,
        reason: &reason,
        quorum: core.sharing().quorum,
        fleet: core.known().map_or(0, |known| known.instances),
        window: core.sharing().window,
    };
    let entry = match question {
        Ask::Trip => {
            let trip = trip(&new_opening, 0, None);
            ask(core, |deadline| board.trip(at, &trip, deadline)).await
        }
        Ask::Reopen { opening, round, since } => {
            let trip = trip(opening, *round, Some(*since));
            ask(core, |deadline| board.reopen(at, &trip, deadline)).await
        }
        Ask::Close { opening } => ask(core, |deadline| board.close(at, opening.as_deref(), &reason, deadline)).await,
        Ask::Lease { opening } | Ask::Keep { opening } => {
            let leased = ask(core, |deadline| board.lease(at, opening, terms.ttl(), deadline)).await;
            let Some(leased) = leased else { return false };
            let order = replica.leased(&leased, asked_at, breaker.now(), terms);
            breaker.obey(news.generation, order);
            core.learn_of(&leased.entry);
            hear(core, breaker, replica, &leased.entry);
            return true;
        }
        Ask::Yield => {
            // First here, then there: a call that came in between would be a second probe.
            if breaker.obey(news.generation, Order::GiveUp).is_none() {
                return false;
            }
            replica.made_way(breaker.now());
            // Until another call is refused here: else it would ask again before the other one does.
            breaker.forget_wanted();
            return ask(core, |deadline| board.yield_lease(at, deadline)).await.is_some();
        }
    };
    let Some(entry) = entry else { return false };
    replica.told(news.generation);
    core.learn_of(&entry);
    hear(core, breaker, replica, &entry);
    true
}

/// Lets a breaker obey what an entry says, until there is nothing more to obey.
fn hear(core: &Core, breaker: &CircuitBreaker, replica: &mut Replica, entry: &Entry) {
    loop {
        let news = breaker.news();
        let Some(step) = replica.hear(entry, &news, breaker.now()) else {
            return;
        };
        let generation = match step.0 {
            None => news.generation,
            Some(order) => {
                // It has changed meanwhile, and has news of its own: those come first.
                let Some(generation) = breaker.obey(news.generation, order) else {
                    return;
                };
                tell_of_order(core, breaker, entry, order);
                generation
            }
        };
        replica.obeyed(step, generation);
    }
}

fn tell_of_order(core: &Core, breaker: &CircuitBreaker, entry: &Entry, order: Order) {
    let name = breaker.name();
    match (order, &entry.hold) {
        (Order::Hold(held), Some(hold)) => {
            let state = match held {
                Held::Open => "open",
                Held::Closed => "closed",
            };
            tracing::info!(
                breaker = name,
                state,
                reason = hold.reason,
                author = hold.author,
                "an operator holds the breaker"
            );
            core.tell(Some(name), SharedEvent::Overridden(hold.clone()));
        }
        (Order::Release, _) => {
            tracing::info!(breaker = name, "the operator has released the breaker");
            core.tell(Some(name), SharedEvent::Released);
        }
        _ => {}
    }
}

/// Asks within a deadline, and keeps account of how it goes.
async fn ask<T>(core: &Core, question: impl AsyncQuestion<T>) -> Option<T> {
    let deadline = Instant::now() + ASK_DEADLINE;
    let answer = timeout_at(deadline, question.put(deadline)).await;
    match answer {
        Ok(Ok(answer)) => {
            core.answered();
            Some(answer)
        }
        Ok(Err(error)) => {
            core.failed(&error);
            None
        }
        Err(_late) => {
            let message = format!("it has not answered within {ASK_DEADLINE:?}");
            core.failed(&StoreError::new(StoreErrorKind::Unavailable, message));
            None
        }
    }
}

/// A question to the board, for a deadline.
trait AsyncQuestion<T> {
    fn put(self, deadline: Instant) -> impl Future<Output = Result<T, StoreError>> + Send;
}

impl<T, F, Fut> AsyncQuestion<T> for F
where
    F: FnOnce(Instant) -> Fut,
    Fut: Future<Output = Result<T, StoreError>> + Send,
{
    fn put(self, deadline: Instant) -> impl Future<Output = Result<T, StoreError>> + Send {
        self(deadline)
    }
}
