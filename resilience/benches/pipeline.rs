//! What a pipeline costs around a call that is ready at once.
//!
//! `cargo bench -p resilience --bench pipeline`

use std::{future::ready, time::Duration};

use divan::{Bencher, black_box};
use futures_util::FutureExt as _;
use resilience::{
    Algorithm, Limit,
    breaker::CircuitBreaker,
    pipeline::{Layer, Pipeline, RateLimiter, Rejections},
};

fn main() {
    divan::main();
}

fn breaker() -> CircuitBreaker {
    CircuitBreaker::new("bench", Default::default()).expect("valid settings")
}

fn call<L: Layer<u32, u32, Rejections>>(bencher: Bencher<'_, '_>, pipeline: &Pipeline<L>) {
    // Deadlines make a timer, which belongs to a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    bencher.bench_local(|| {
        let answer = black_box(pipeline).call(|| ready(Ok(black_box(7)))).now_or_never();
        black_box(matches!(answer, Some(Ok(7))))
    });
}

#[divan::bench(sample_size = 20_000)]
fn nothing(bencher: Bencher<'_, '_>) {
    call(bencher, &Pipeline::builder().build());
}

#[divan::bench(sample_size = 20_000)]
fn with_breaker(bencher: Bencher<'_, '_>) {
    call(bencher, &Pipeline::builder().breaker(breaker()).build());
}

#[divan::bench(sample_size = 20_000)]
fn with_retry(bencher: Bencher<'_, '_>) {
    call(bencher, &Pipeline::builder().retry(3).build());
}

#[divan::bench(sample_size = 20_000)]
fn with_deadline(bencher: Bencher<'_, '_>) {
    call(bencher, &Pipeline::builder().deadline(Duration::from_secs(1)).build());
}

#[divan::bench(sample_size = 20_000)]
fn with_rate_limit(bencher: Bencher<'_, '_>) {
    let limit = Limit::new(u32::MAX, Duration::from_secs(1)).with_algorithm(Algorithm::FixedWindow);
    let limiter = RateLimiter::local("bench", limit).expect("valid settings");
    call(bencher, &Pipeline::builder().rate_limit(limiter).build());
}

#[divan::bench(sample_size = 20_000)]
fn with_breaker_and_deadline(bencher: Bencher<'_, '_>) {
    let pipeline = Pipeline::builder()
        .breaker(breaker())
        .deadline(Duration::from_secs(1))
        .build();
    call(bencher, &pipeline);
}

#[divan::bench(sample_size = 20_000)]
fn with_deadline_retry_breaker_deadline(bencher: Bencher<'_, '_>) {
    let pipeline = Pipeline::builder()
        .deadline(Duration::from_secs(2))
        .retry(3)
        .breaker(breaker())
        .deadline(Duration::from_secs(1))
        .build();
    call(bencher, &pipeline);
}
