//! A guard decides or observes; authentication decides.

use poem::handler;
use resilience::resilient;

#[resilient(auth("fail_closed", mode = "observe"))]
#[handler]
async fn auth() {}

#[resilient(rate_limit(30, 60, mode = "observed"))]
#[handler]
async fn quota() {}

#[resilient(flag("beta", default = false, mode = observe))]
#[handler]
async fn flag() {}

fn main() {
    let _ = poem::Route::new()
        .at("/auth", poem::get(auth))
        .at("/quota", poem::get(quota))
        .at("/flag", poem::get(flag));
}
