//! A breaker is assigned.

use poem::handler;
use resilience::resilient;

#[resilient(breaker("shared"))]
#[handler]
async fn called() {}

#[resilient(breaker)]
#[handler]
async fn bare() {}

fn main() {
    let _ = poem::Route::new()
        .at("/called", poem::get(called))
        .at("/bare", poem::get(bare));
}
