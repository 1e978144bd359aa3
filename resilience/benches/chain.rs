//! What the guards add to a handler: three of them over the embedded store, and over a store whose breaker is open.
//!
//! `cargo bench -p resilience --bench chain`

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use divan::{Bencher, black_box};
use poem::{Endpoint, EndpointExt, Request, get, handler};
use resilience::{
    Identity, Resilience, resilient,
    store::{MemoryStore, Probe, Store, StoreError, StoreErrorKind, StoreFuture, Take, Taken},
};
use tokio::{runtime::Runtime, time::Instant};

fn main() {
    divan::main();
}

const BODY: &str = "{\"ok\":true}";

#[handler]
async fn bare() -> &'static str {
    BODY
}

#[resilient(
    auth = "fail_closed",
    flag("checkout", default = false),
    rate_limit(4_000_000_000, 60)
)]
#[handler]
async fn guarded(_user: Identity) -> &'static str {
    BODY
}

#[resilient(flag("checkout", default = false))]
#[handler]
async fn flagged() -> &'static str {
    BODY
}

#[resilient(auth = "fail_closed")]
#[handler]
async fn verified(_user: Identity) -> &'static str {
    BODY
}

#[resilient(rate_limit(4_000_000_000, 60))]
#[handler]
async fn limited() -> &'static str {
    BODY
}

#[divan::bench]
fn bare_handler(bencher: Bencher<'_, '_>) {
    run(bencher, get(bare));
}

#[divan::bench]
fn three_guards(bencher: Bencher<'_, '_>) {
    run(bencher, get(guarded).with(over(memory())));
}

#[divan::bench]
fn one_flag(bencher: Bencher<'_, '_>) {
    run(bencher, get(flagged).with(over(memory())));
}

#[divan::bench]
fn one_auth(bencher: Bencher<'_, '_>) {
    run(bencher, get(verified).with(over(memory())));
}

#[divan::bench]
fn one_quota(bencher: Bencher<'_, '_>) {
    run(bencher, get(limited).with(over(memory())));
}

#[divan::bench]
fn three_guards_breaker_open(bencher: Bencher<'_, '_>) {
    run(bencher, get(guarded).with(over(Down)));
}

fn memory() -> MemoryStore {
    MemoryStore::new().with_api_key("letmein", "user-42")
}

fn over(store: impl Store) -> Resilience {
    // The prober of an open breaker lives in this runtime, which never runs: the breaker stays open.
    static RUNTIME: std::sync::LazyLock<Runtime> = std::sync::LazyLock::new(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    });
    std::mem::forget(RUNTIME.enter());
    Resilience::builder().store(store).build().expect("valid settings")
}

/// Requests that are answered at the first poll, one after another.
fn run(bencher: Bencher<'_, '_>, endpoint: impl Endpoint) {
    let call = |request| {
        let mut response = pin!(endpoint.call(request));
        match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => response,
            Poll::Pending => unreachable!("nothing here waits"),
        }
    };
    let request = || Request::builder().header("x-api-key", "letmein").finish();
    for _ in 0..10 {
        drop(call(request()));
    }
    bencher
        .with_inputs(request)
        .bench_values(|request| black_box(call(request)).is_ok());
}

/// A store that is down.
#[derive(Debug)]
struct Down;

fn down<T: Send + 'static>() -> StoreFuture<'static, T> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Unavailable, "down")) })
}

impl Store for Down {
    fn identity<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<String>> {
        down()
    }

    fn flag<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<bool>> {
        down()
    }

    fn take<'a>(&'a self, _: &'a [Take<'a>], _: Instant) -> StoreFuture<'a, Vec<Taken>> {
        down()
    }

    fn probe(&self, _: Probe, _: Instant) -> StoreFuture<'_, ()> {
        down()
    }
}
