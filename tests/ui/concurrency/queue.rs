//! What belongs to a queue needs one, and what belongs to slots stands with them.

use poem::handler;
use resilience::resilient;

#[resilient(concurrency(64, queue_timeout = "100ms"))]
#[handler]
async fn timeout_alone() {}

#[resilient(queue = 16)]
#[handler]
async fn queue_alone() {}

#[resilient(concurrency(64), queue = 16, queue_timeout = "100ms", adaptive = true)]
#[handler]
async fn outside() {}

#[resilient(concurrency(64, queu = 16))]
#[handler]
async fn misspelt() {}

fn main() {
    let _ = poem::Route::new()
        .at("/timeout_alone", poem::get(timeout_alone))
        .at("/queue_alone", poem::get(queue_alone))
        .at("/outside", poem::get(outside))
        .at("/misspelt", poem::get(misspelt));
}
