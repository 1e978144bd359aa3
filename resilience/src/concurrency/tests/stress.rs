//! Many tasks on several threads, half of which go away, panic or run out of time. Outcomes are random; what must hold
//! holds in all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::time::{sleep, timeout};

use super::super::*;
use crate::breaker::Outcome;

const CALLERS: u64 = 64;
const ROUNDS: u32 = 150;

/// Counts who holds a slot, for itself, so that the limit is not asked about itself.
struct Holding<'a>(&'a AtomicU32);

impl<'a> Holding<'a> {
    fn new(count: &'a AtomicU32, at_most: u32) -> Self {
        let holders = count.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(holders <= at_most, "{holders} in flight");
        Self(count)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn call(limit: ConcurrencyLimit, holders: Arc<AtomicU32>, at_most: u32, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let priority = [Priority::Critical, Priority::Default, Priority::Background][rng.usize(..3)];
    let acquired = match rng.u32(..4) {
        0 => limit.try_acquire(priority),
        1 => {
            let until = Instant::now() + Duration::from_micros(rng.u64(..3_000));
            limit.acquire_until(priority, until).await
        }
        _ => limit.acquire(priority).await,
    };
    let Ok(mut slot) = acquired else { return };
    // Dropped before the slot, so that the count is never above the truth.
    let holding = Holding::new(&holders, at_most);
    match rng.u32(..8) {
        0 => std::panic::resume_unwind(Box::new("the handler's fault")),
        1 => tokio::task::yield_now().await,
        2 => sleep(Duration::from_millis(1)).await,
        _ => {}
    }
    slot.served([Outcome::Success, Outcome::Failure, Outcome::Neutral][rng.usize(..3)]);
    drop(holding);
    drop(slot);
}

async fn storm(config: ConcurrencyConfig) {
    let at_most = config.limit;
    let limit = ConcurrencyLimit::new("storm", config).expect("valid settings");
    let holders = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (limit, holders) = (limit.clone(), holders.clone());
            tokio::spawn(async move {
                let mut rng = Rng::with_seed(caller);
                for _ in 0..ROUNDS {
                    let call = tokio::spawn(call(limit.clone(), holders.clone(), at_most, rng.u64(..)));
                    let abort = call.abort_handle();
                    match rng.u32(..4) {
                        0 => abort.abort(),
                        1 => {
                            let patience = Duration::from_micros(rng.u64(..2_000));
                            if timeout(patience, call).await.is_err() {
                                abort.abort();
                            }
                            continue;
                        }
                        _ => {}
                    }
                    if let Err(error) = call.await
                        && let Ok(panic) = error.try_into_panic()
                    {
                        assert!(panic.is::<&str>(), "a caller saw too many in flight");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no rule was broken");
    }
    // An aborted call may be in its last moments on another thread.
    timeout(Duration::from_secs(30), async {
        while limit.in_flight() > 0 || limit.queued() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("something was left behind");
    assert_eq!(holders.load(Ordering::SeqCst), 0);
    assert!(limit.shared.semaphore.with(|state| state.is_idle()));
    // And nothing is worn out.
    let places: Vec<_> = (0..limit.limit())
        .map(|_| limit.try_acquire(Priority::Default))
        .collect();
    assert!(places.iter().all(Result::is_ok));
    assert!(limit.try_acquire(Priority::Default).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fixed_limit_survives_anything() {
    storm(
        ConcurrencyConfig::new(5)
            .with_queue(7)
            .with_queue_timeout(Duration::from_millis(2)),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_adaptive_limit_survives_anything() {
    storm(
        ConcurrencyConfig::new(12)
            .with_queue(7)
            .with_queue_timeout(Duration::from_millis(2))
            .with_adaptive(Adaptive::default()),
    )
    .await;
}
