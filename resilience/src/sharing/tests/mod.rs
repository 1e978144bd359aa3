//! Several runtimes over one board, each by a store of its own that a test drives, in paused time.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{Order, SharedBreaker, Sharing};
use crate::{
    Dependencies, Resilience,
    breaker::{BreakerConfig, CallError, State},
    testing::{Answer, ScriptedStore},
};

mod chaos;
mod events;
mod follow;
mod joining;
mod log;
mod outage;
mod probes;
mod quorum;
mod seed;
mod states;

const OPEN_FOR: Duration = Duration::from_secs(5);

/// Instances of a service, and the store as each of them sees it.
struct Fleet {
    sharing: Sharing,
    instances: Vec<Resilience>,
    stores: Vec<ScriptedStore>,
    /// Nobody's: what an operator, or whoever looks from outside, sees.
    store: ScriptedStore,
}

impl Fleet {
    async fn of(size: usize, sharing: Sharing) -> Self {
        let mut fleet = Self {
            sharing,
            instances: Vec::new(),
            stores: Vec::new(),
            store: ScriptedStore::new(),
        };
        for _ in 0..size {
            fleet.grow();
        }
        // All have been seen by all.
        sleep(Duration::from_secs(3)).await;
        fleet
    }

    fn grow(&mut self) -> SharedBreaker {
        self.grow_over(self.store.beside())
    }

    fn grow_over(&mut self, store: ScriptedStore) -> SharedBreaker {
        let instance = instance(&store, &self.sharing);
        let breaker = instance.breaker("payments");
        self.instances.push(instance);
        self.stores.push(store);
        breaker
    }

    /// The same for the stores of all.
    fn all(&self, fault: impl Fn(&ScriptedStore)) {
        self.stores.iter().for_each(fault);
    }

    fn payments(&self, nth: usize) -> SharedBreaker {
        self.instances[nth].breaker("payments")
    }

    fn states(&self) -> Vec<State> {
        (0..self.instances.len())
            .map(|nth| self.payments(nth).circuit().state())
            .collect()
    }
}

fn instance(store: &ScriptedStore, sharing: &Sharing) -> Resilience {
    instance_with(store, sharing, config())
}

fn instance_with(store: &ScriptedStore, sharing: &Sharing, config: BreakerConfig) -> Resilience {
    Resilience::builder()
        .store(store.clone())
        .dependencies(Dependencies::with_config(config).expect("valid"))
        .share_breakers(sharing.clone())
        .build()
        .expect("valid")
}

fn config() -> BreakerConfig {
    BreakerConfig::default()
        .with_failures_in_a_row(2)
        .with_open_for(OPEN_FOR)
        .with_probe_lease(Duration::from_secs(2))
}

/// Takes no time at all, whatever the store does.
async fn at_once<T>(future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let output = future.await;
    assert_eq!(start.elapsed(), Duration::ZERO, "it has waited");
    output
}

/// A call of a healthy dependency: `Ok`, or refused.
async fn call(breaker: &SharedBreaker) -> Result<(), CallError<&'static str>> {
    at_once(breaker.protect(async { Ok(()) })).await
}

/// Neither questions nor listening come through.
fn cut(store: &ScriptedStore, answer: Answer<()>) {
    store.on_board(answer.clone()).on_changes(answer);
    store.hang_up();
}

fn mend(store: &ScriptedStore) {
    store.on_board(Answer::ok(())).on_changes(Answer::ok(()));
}

async fn fail(breaker: &SharedBreaker, times: usize) {
    for _ in 0..times {
        assert!(breaker.protect(async { Err::<(), _>("down") }).await.is_err());
    }
}

/// Lets the tasks in the background have their turn, and hardly any time pass.
async fn soon() {
    sleep(Duration::from_millis(5)).await;
}

/// A dependency that counts who is inside.
#[derive(Default)]
struct Dependency {
    calls: AtomicU32,
    inside: AtomicU32,
    most: AtomicU32,
}

impl Dependency {
    async fn call(&self, takes: Duration, result: Result<(), &'static str>) -> Result<(), &'static str> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let _left = Leaving(&self.inside);
        sleep(takes).await;
        result
    }
}

struct Leaving<'a>(&'a AtomicU32);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
