//! Slots and places in a queue are from 1 to 1,000,000; a wait is a duration.

use poem::handler;
use resilience::resilient;

#[resilient(concurrency())]
#[handler]
async fn missing() {}

#[resilient(concurrency(0))]
#[handler]
async fn zero() {}

#[resilient(concurrency(-1))]
#[handler]
async fn negative() {}

#[resilient(concurrency(1_000_001))]
#[handler]
async fn too_many() {}

#[resilient(concurrency("64"))]
#[handler]
async fn quoted() {}

#[resilient(concurrency(SLOTS))]
#[handler]
async fn constant() {}

#[resilient(concurrency(64, queue = 0))]
#[handler]
async fn no_queue() {}

#[resilient(concurrency(64, queue = 16, queue_timeout = "0ms"))]
#[handler]
async fn no_wait() {}

#[resilient(concurrency(64, queue = 16, queue_timeout = 100))]
#[handler]
async fn no_unit() {}

#[resilient(concurrency(64, adaptive = "yes"))]
#[handler]
async fn no_boolean() {}

#[resilient(concurrency(1, adaptive = true))]
#[handler]
async fn nothing_to_adapt() {}

fn main() {
    let _ = poem::Route::new()
        .at("/missing", poem::get(missing))
        .at("/zero", poem::get(zero))
        .at("/negative", poem::get(negative))
        .at("/too_many", poem::get(too_many))
        .at("/quoted", poem::get(quoted))
        .at("/constant", poem::get(constant))
        .at("/no_queue", poem::get(no_queue))
        .at("/no_wait", poem::get(no_wait))
        .at("/no_unit", poem::get(no_unit))
        .at("/no_boolean", poem::get(no_boolean))
        .at("/nothing_to_adapt", poem::get(nothing_to_adapt));
}
