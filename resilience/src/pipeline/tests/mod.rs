mod answers;
mod cancel;
mod limits;
mod order;
mod retry;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    Limit,
    breaker::{BreakerConfig, CircuitBreaker},
    clock::Clock,
    concurrency::{ConcurrencyConfig, ConcurrencyLimit},
    pipeline::{Kinds, PipelineError, RateLimiter},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The call's own error: which attempt it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("attempt {0} failed")]
pub(super) struct Failed(pub(super) u32);

/// A dependency that is down, and how often it was asked.
#[derive(Default)]
pub(super) struct Down(AtomicU32);

impl Down {
    pub(super) async fn ask(&self) -> Result<u32, Failed> {
        Err(Failed(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }

    pub(super) fn asked(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A breaker that is open for five seconds.
pub(super) fn open_breaker() -> CircuitBreaker {
    let breaker = CircuitBreaker::new("test", BreakerConfig::default()).unwrap();
    while !breaker.record_failure() {}
    breaker
}

pub(super) fn limiter(requests: u32) -> RateLimiter {
    let clock = Clock::manual();
    RateLimiter::local("test", Limit::new(requests, SECOND))
        .unwrap()
        .with_clock(clock)
}

pub(super) fn inner<E, K: Kinds>(error: PipelineError<E, K>) -> E {
    error.into_inner().expect("the call's own error")
}

pub(super) fn limit_of_one(queue: u32) -> ConcurrencyLimit {
    let config = ConcurrencyConfig::new(1)
        .with_queue(queue)
        .with_queue_timeout(millis(100));
    ConcurrencyLimit::new("test", config).unwrap()
}
