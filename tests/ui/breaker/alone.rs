//! A breaker stands before guards that ask the store.

use poem::handler;
use resilience::resilient;

#[resilient(breaker = "shared", deadline = "2s")]
#[handler]
async fn checkout() {}

fn main() {
    let _ = poem::get(checkout);
}
