//! Several runtimes over one embedded store, in paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{Order, SharedBreaker, Sharing};
use crate::{
    Dependencies, Resilience,
    breaker::{BreakerConfig, CallError, State},
    store::MemoryStore,
};

mod follow;

const OPEN_FOR: Duration = Duration::from_secs(5);

/// Instances of a service, which share one store.
struct Fleet {
    store: MemoryStore,
    sharing: Sharing,
    instances: Vec<Resilience>,
}

impl Fleet {
    async fn of(size: usize, sharing: Sharing) -> Self {
        let mut fleet = Self {
            store: MemoryStore::new(),
            sharing,
            instances: Vec::new(),
        };
        for _ in 0..size {
            fleet.grow();
        }
        // All have been seen by all.
        sleep(Duration::from_secs(3)).await;
        fleet
    }

    fn grow(&mut self) -> SharedBreaker {
        let config = BreakerConfig::default()
            .with_failures_in_a_row(2)
            .with_open_for(OPEN_FOR)
            .with_probe_lease(Duration::from_secs(2));
        let instance = Resilience::builder()
            .store(self.store.clone())
            .dependencies(Dependencies::with_config(config).expect("valid"))
            .share_breakers(self.sharing.clone())
            .build()
            .expect("valid");
        let breaker = instance.breaker("payments");
        self.instances.push(instance);
        breaker
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
