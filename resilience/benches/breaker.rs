//! What a breaker costs per call, on one thread and on two that share it.
//!
//! `cargo bench -p resilience --bench breaker`

use std::time::Duration;

use divan::{Bencher, black_box};
use resilience::breaker::{BreakerConfig, CircuitBreaker, RateWindow, State};

fn main() {
    divan::main();
}

fn breaker(config: BreakerConfig) -> CircuitBreaker {
    CircuitBreaker::new("bench", config).expect("valid settings")
}

/// Open for longer than any benchmark runs.
fn open() -> CircuitBreaker {
    let breaker = breaker(BreakerConfig::default().with_open_for(Duration::from_secs(86_400)));
    trip(&breaker);
    breaker
}

fn trip(breaker: &CircuitBreaker) {
    while breaker.state() == State::Closed {
        breaker.record_failure();
    }
}

fn rate_over(window: RateWindow) -> CircuitBreaker {
    breaker(BreakerConfig::default().with_failure_rate(0.5, 20, window))
}

fn succeed(bencher: Bencher<'_, '_>, breaker: &CircuitBreaker) {
    bencher.bench(|| {
        if let Ok(permit) = black_box(breaker).try_acquire() {
            permit.success();
        }
    });
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_failures_in_a_row(bencher: Bencher<'_, '_>) {
    succeed(bencher, &breaker(BreakerConfig::default()));
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_owned_permit(bencher: Bencher<'_, '_>) {
    let breaker = breaker(BreakerConfig::default());
    bencher.bench(|| black_box(&breaker).try_acquire_owned().map(|permit| permit.success()));
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_rate_over_calls(bencher: Bencher<'_, '_>) {
    succeed(bencher, &rate_over(RateWindow::Calls(100)));
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_rate_over_time(bencher: Bencher<'_, '_>) {
    succeed(bencher, &rate_over(RateWindow::Time(Duration::from_secs(10))));
}

/// Two readings of the clock and the lock.
#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_slow_calls(bencher: Bencher<'_, '_>) {
    let (second, window) = (Duration::from_secs(1), RateWindow::Calls(100));
    succeed(
        bencher,
        &breaker(BreakerConfig::default().with_slow_calls(second, 0.5, 20, window)),
    );
}

/// The worst closed path: each call takes the lock, since a failure is always outstanding.
#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn closed_failure_then_success(bencher: Bencher<'_, '_>) {
    let breaker = breaker(BreakerConfig::default().with_failures_in_a_row(u32::MAX));
    bencher.bench(|| {
        black_box(&breaker).record_failure();
        black_box(&breaker).record_success();
    });
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn open_refused(bencher: Bencher<'_, '_>) {
    let breaker = open();
    bencher.bench(|| black_box(&breaker).try_acquire().is_err());
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn open_supervised_refused(bencher: Bencher<'_, '_>) {
    let breaker = open().supervised();
    trip(&breaker);
    bencher.bench(|| black_box(&breaker).try_acquire().is_err());
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn is_available_closed(bencher: Bencher<'_, '_>) {
    let breaker = breaker(BreakerConfig::default());
    bencher.bench(|| black_box(&breaker).is_available());
}

#[divan::bench(threads = [1, 2], sample_size = 20_000)]
fn is_available_open(bencher: Bencher<'_, '_>) {
    let breaker = open();
    bencher.bench(|| black_box(&breaker).is_available());
}
