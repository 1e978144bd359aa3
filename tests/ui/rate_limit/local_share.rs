//! A local share is a percentage, and means nothing where this process does not count.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit(30, 60, on_outage = "fail_local", local_share = "0%"))]
#[handler]
async fn nothing() {}

#[resilient(rate_limit(30, 60, on_outage = "fail_local", local_share = 25))]
#[handler]
async fn number() {}

#[resilient(rate_limit(30, 60, local_share = "25%"))]
#[handler]
async fn by_default() {}

#[resilient(rate_limit(30, 60, on_outage = "fail_closed", local_share = "25%"))]
#[handler]
async fn closed() {}

#[resilient(rate_limit(30, 60, on_outage = "fail_locally", local_share = "25%"))]
#[handler]
async fn one_mistake() {}

fn main() {
    let _ = poem::Route::new()
        .at("/nothing", poem::get(nothing))
        .at("/number", poem::get(number))
        .at("/by_default", poem::get(by_default))
        .at("/closed", poem::get(closed))
        .at("/one_mistake", poem::get(one_mistake));
}
