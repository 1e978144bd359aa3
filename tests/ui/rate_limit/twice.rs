//! The same quota twice is one too many.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit(30, 60), rate_limit(30, "1m"))]
#[handler]
async fn identical() {}

#[resilient(rate_limit(30, 60, key = header("X-Tenant")), rate_limit(30, 60, key = header("x-tenant")))]
#[handler]
async fn by_header() {}

#[resilient(rate_limit(30, 60), rate_limit(30, 60, on_outage = "fail_closed"))]
#[handler]
async fn other_outage() {}

#[resilient(rate_limit(30, 60, name = "api"), rate_limit(50, 60, name = "api"))]
#[handler]
async fn same_name() {}

#[resilient(rate_limit(30, 60), rate_limit(30, 60, key = global), rate_limit(500, "1d"), rate_limit(30, 60, name = "api"), rate_limit(500, "1h", name = "api"))]
#[handler]
async fn fine() {}

fn main() {
    let _ = poem::Route::new()
        .at("/identical", poem::get(identical))
        .at("/by_header", poem::get(by_header))
        .at("/other_outage", poem::get(other_outage))
        .at("/same_name", poem::get(same_name))
        .at("/fine", poem::get(fine));
}
