//! The names of the other choices' breakers are taken.

use poem::handler;
use resilience::resilient;

#[resilient(breaker = "store", rate_limit(30, 60))]
#[handler]
async fn store() {}

#[resilient(breaker = "rate_limit", rate_limit(30, 60))]
#[handler]
async fn rate_limit() {}

fn main() {
    let _ = poem::Route::new()
        .at("/store", poem::get(store))
        .at("/rate_limit", poem::get(rate_limit));
}
