//! Several instances that share breakers over one real Redis.

mod orders;
mod outage;
mod probes;
mod pushes;
mod records;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use resilience::{
    Dependencies, Resilience,
    breaker::{BreakerConfig, CallError, State},
    sharing::{SharedBreaker, Sharing},
    store::RedisStore,
};
use resilience_tests::{RedisServer, eventually};
use tokio::{task::AbortHandle, time::sleep};

const SYSTEM: &str = "payments-team";
const KEYS: &str = "breaker:{payments-team}:";
const OPEN_FOR: Duration = Duration::from_millis(300);
const FAILURES: u32 = 3;

fn config() -> BreakerConfig {
    BreakerConfig::default()
        .with_failures_in_a_row(FAILURES)
        .with_open_for(OPEN_FOR)
        .with_probe_lease(Duration::from_secs(2))
}

/// An instance with connections and breakers of its own.
fn instance(url: String) -> Resilience {
    let store = RedisStore::builder(url)
        .reconnect_cap(Duration::from_millis(300))
        .build()
        .expect("valid");
    Resilience::builder()
        .store(store)
        .dependencies(Dependencies::with_config(config()).expect("valid"))
        .share_breakers(Sharing::system(SYSTEM))
        .build()
        .expect("valid")
}

/// Instances that all know of each other, and hear each other.
async fn fleet(redis: &RedisServer, urls: impl IntoIterator<Item = String>) -> Vec<Resilience> {
    let fleet: Vec<_> = urls.into_iter().map(instance).collect();
    all_here(redis, fleet.len()).await;
    fleet
}

async fn all_here(redis: &RedisServer, size: usize) {
    let (instances, changes) = (format!("{KEYS}instances"), format!("{KEYS}changes"));
    eventually("all are seen, and listen", async || {
        redis.cli(&["ZCARD", &instances]) == size.to_string()
            && redis.cli(&["PUBSUB", "NUMSUB", &changes]) == format!("{changes}\n{size}")
    })
    .await;
}

fn named(fleet: &[Resilience], name: &str) -> Vec<SharedBreaker> {
    fleet.iter().map(|instance| instance.breaker(name)).collect()
}

fn all_are(breakers: &[SharedBreaker], state: State) -> bool {
    breakers.iter().all(|breaker| breaker.circuit().state() == state)
}

/// Opens this instance's own breaker.
fn trip(breaker: &SharedBreaker) {
    for _ in 0..FAILURES {
        breaker.circuit().record_failure();
    }
}

/// A call whose dependency answers at once. Whether it was let in: whatever the store does, that is known at once.
fn call(breaker: &SharedBreaker, is_well: bool) -> bool {
    let answer = async { if is_well { Ok(()) } else { Err("down") } };
    let outcome = breaker
        .protect(answer)
        .now_or_never()
        .expect("a call waits for nothing");
    match outcome {
        Ok(()) => true,
        Err(CallError::Inner(_)) => true,
        Err(CallError::Open(_)) => false,
    }
}

/// A dependency that breaks and heals, and counts who is inside.
#[derive(Default)]
struct Dependency {
    is_well: AtomicBool,
    hangs: AtomicBool,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    inside: u32,
    calls: u32,
    /// Only probes come in, from when it was turned on to the first success.
    is_watched: bool,
    most: u32,
}

impl Dependency {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().expect("nobody panics with it")
    }

    async fn call(&self) -> Result<(), &'static str> {
        let _inside = Inside::enter(self);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(20)).await;
        if self.is_well.load(Ordering::SeqCst) {
            self.count().is_watched = false;
            Ok(())
        } else {
            Err("down")
        }
    }

    /// From now on only probes may come in: all circuits are open, and all calls of before have left.
    async fn watch(&self) {
        eventually("the calls of before have left", async || {
            let mut count = self.count();
            count.is_watched = count.inside == 0;
            count.is_watched
        })
        .await;
    }
}

struct Inside<'a>(&'a Dependency);

impl<'a> Inside<'a> {
    fn enter(dependency: &'a Dependency) -> Self {
        let mut count = dependency.count();
        count.inside += 1;
        count.calls += 1;
        if count.is_watched {
            count.most = count.most.max(count.inside);
        }
        Self(dependency)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.count().inside -= 1;
    }
}

/// Callers that end with this value.
struct Callers(Vec<AbortHandle>);

impl Callers {
    /// One for each breaker, that calls on and on.
    fn start(breakers: &[SharedBreaker], dependency: &Arc<Dependency>) -> Self {
        let callers = breakers.iter().map(|breaker| {
            let (breaker, dependency) = (breaker.clone(), Arc::clone(dependency));
            tokio::spawn(async move {
                loop {
                    _ = breaker.protect(dependency.call()).await;
                    sleep(Duration::from_millis(2)).await;
                }
            })
            .abort_handle()
        });
        Self(callers.collect())
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
