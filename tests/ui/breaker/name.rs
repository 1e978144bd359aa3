//! A breaker is shared, per operation, or has a name of its own.

use poem::handler;
use resilience::resilient;

#[resilient(breaker = "")]
#[handler]
async fn empty() {}

#[resilient(breaker = "my breaker")]
#[handler]
async fn space() {}

#[resilient(breaker = shared)]
#[handler]
async fn no_quotes() {}

#[resilient(breaker = 1)]
#[handler]
async fn number() {}

#[resilient(breaker = "Shared")]
#[handler]
async fn like_shared() {}

#[resilient(breaker = "per-operation")]
#[handler]
async fn like_per_operation() {}

fn main() {
    let _ = poem::Route::new()
        .at("/empty", poem::get(empty))
        .at("/space", poem::get(space))
        .at("/no_quotes", poem::get(no_quotes))
        .at("/number", poem::get(number))
        .at("/like_shared", poem::get(like_shared))
        .at("/like_per_operation", poem::get(like_per_operation));
}
