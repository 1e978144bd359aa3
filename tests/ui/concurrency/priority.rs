//! A priority is a place in a queue.

use poem::handler;
use resilience::resilient;

#[resilient(priority = "critical")]
#[handler]
async fn alone() {}

#[resilient(concurrency(64), priority = "critical")]
#[handler]
async fn without_a_queue() {}

#[resilient(concurrency(64, queue = 16), priority = "urgent")]
#[handler]
async fn unknown() {}

#[resilient(concurrency(64, queue = 16), priority = "Critical")]
#[handler]
async fn capital() {}

#[resilient(concurrency(64, queue = 16), priority = 1)]
#[handler]
async fn number() {}

fn main() {
    let _ = poem::Route::new()
        .at("/alone", poem::get(alone))
        .at("/without_a_queue", poem::get(without_a_queue))
        .at("/unknown", poem::get(unknown))
        .at("/capital", poem::get(capital))
        .at("/number", poem::get(number));
}
