//! A handler has one choice of breakers.

use poem::handler;
use resilience::resilient;

#[resilient(breaker = "shared", breaker = "per_operation")]
#[handler]
async fn twice() {}

fn main() {
    let _ = poem::Route::new().at("/twice", poem::get(twice));
}
