//! What a place costs that is free, and what it costs to be refused, on one thread and on two that share the limit.
//!
//! `cargo bench -p resilience --bench concurrency`

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use divan::{Bencher, black_box};
use resilience::{
    breaker::Outcome,
    concurrency::{Adaptive, ConcurrencyConfig, ConcurrencyLimit, Priority},
};
use tokio::sync::Semaphore;

fn main() {
    divan::main();
}

fn limit(config: ConcurrencyConfig) -> ConcurrencyLimit {
    ConcurrencyLimit::new("bench", config).expect("valid settings")
}

/// The output of a future that is ready at once.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("there is a free place"),
    }
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn try_acquire(bencher: Bencher<'_, '_>) {
    let limit = limit(ConcurrencyConfig::new(64).with_queue(16));
    bencher.bench(|| drop(black_box(&limit).try_acquire(Priority::Default)));
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn acquire(bencher: Bencher<'_, '_>) {
    let limit = limit(ConcurrencyConfig::new(64).with_queue(16));
    bencher.bench(|| drop(ready(black_box(&limit).acquire(Priority::Default))));
}

/// With two looks at the clock.
#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn adaptive_served(bencher: Bencher<'_, '_>) {
    let limit = limit(ConcurrencyConfig::new(64).with_adaptive(Adaptive::default()));
    bencher.bench(|| {
        if let Ok(mut slot) = black_box(&limit).try_acquire(Priority::Default) {
            slot.served(Outcome::Success);
        }
    });
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn refused(bencher: Bencher<'_, '_>) {
    let limit = limit(ConcurrencyConfig::new(1));
    let _taken = limit.try_acquire(Priority::Default);
    bencher.bench(|| black_box(&limit).try_acquire(Priority::Default).is_err());
}

/// For comparison: no queue of its own, no priorities, no counts.
#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn tokio_try_acquire_owned(bencher: Bencher<'_, '_>) {
    let semaphore = Arc::new(Semaphore::new(64));
    bencher.bench(|| drop(black_box(&semaphore).clone().try_acquire_owned()));
}
