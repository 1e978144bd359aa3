//! Slots are a list, a priority is a word, and each stands once.

use poem::handler;
use resilience::resilient;

#[resilient(concurrency = 64)]
#[handler]
async fn assigned() {}

#[resilient(concurrency)]
#[handler]
async fn bare() {}

#[resilient(concurrency(64, 16))]
#[handler]
async fn two_numbers() {}

#[resilient(concurrency(64, queue = 16), priority("critical"))]
#[handler]
async fn called() {}

#[resilient(concurrency(64), concurrency(32))]
#[handler]
async fn two_limits() {}

#[resilient(concurrency(64, queue = 16), priority = "critical", priority = "default")]
#[handler]
async fn two_priorities() {}

#[resilient(concurency(64))]
#[handler]
async fn misspelt() {}

fn main() {
    let _ = poem::Route::new()
        .at("/assigned", poem::get(assigned))
        .at("/bare", poem::get(bare))
        .at("/two_numbers", poem::get(two_numbers))
        .at("/called", poem::get(called))
        .at("/two_limits", poem::get(two_limits))
        .at("/two_priorities", poem::get(two_priorities))
        .at("/misspelt", poem::get(misspelt));
}
