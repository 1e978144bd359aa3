//! All guards of a handler stand in one attribute.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit(30, 60))]
#[resilient(auth = "fail_closed")]
#[handler]
async fn checkout() {}

#[resilient(rate_limit(30, 60))]
#[handler]
#[resilience::resilient(deadline = "2s")]
async fn below() {}

fn main() {
    let _ = poem::get(checkout).post(below);
}
