//! Many at once, who give up, panic and run out of time at random.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::timeout};

use super::super::*;

const SLOTS: u32 = 5;

/// Counts who is in, apart from the limit's own count.
struct Inside<'a>(&'a AtomicU32);

impl<'a> Inside<'a> {
    fn enter(inside: &'a AtomicU32) -> Self {
        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= SLOTS, "{now} at once");
        Self(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn visit(limit: ConcurrencyLimit, inside: Arc<AtomicU32>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        let priority = [Priority::Critical, Priority::Default, Priority::Background][random.usize(..3)];
        let patience = Duration::from_micros(random.u64(..400));
        let yields = random.usize(..8);
        let visit = async {
            let Ok(mut slot) = limit.acquire(priority).await else {
                return;
            };
            let _inside = Inside::enter(&inside);
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            slot.served([crate::breaker::Outcome::Success, crate::breaker::Outcome::Failure][yields % 2]);
            drop(_inside);
            drop(slot);
        };
        // Dropped wherever it happens to be.
        let _gave_up = timeout(patience, visit).await;
        if random.u8(..) < 8 {
            let limit = limit.clone();
            let panics = tokio::spawn(async move {
                let _slot = limit.acquire(priority).await;
                std::panic::resume_unwind(Box::new("as a handler may"));
            });
            assert!(panics.await.is_err());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_than_the_limit_at_once_and_nobody_at_the_end() {
    for config in [
        ConcurrencyConfig::new(SLOTS),
        ConcurrencyConfig::new(SLOTS).with_queue(7),
        ConcurrencyConfig::new(SLOTS)
            .with_queue(7)
            .with_queue_timeout(Duration::from_micros(200)),
        ConcurrencyConfig::new(SLOTS).with_queue(50).with_adaptive(),
    ] {
        let limit = ConcurrencyLimit::new("stress", config).expect("valid");
        let inside = Arc::new(AtomicU32::new(0));
        let mut visits = JoinSet::new();
        for seed in 0..32 {
            visits.spawn(visit(limit.clone(), Arc::clone(&inside), seed));
        }
        while let Some(visited) = visits.join_next().await {
            visited.expect("no more than the limit");
        }
        assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
        assert!(limit.slots.state().is_empty());
        // And it still lets in as many as it should.
        let slots: Vec<_> = (0..limit.limit()).map(|_| limit.try_acquire()).collect();
        assert!(slots.iter().all(Result::is_ok));
        assert!(limit.try_acquire().is_err());
    }
}
