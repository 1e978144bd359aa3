//! Text that reads like a rate is not the name of a quota.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit("30/min"))]
#[handler]
async fn positional() {}

#[resilient(rate_limit("30 requests per minute", key = global))]
#[handler]
async fn spelled() {}

#[resilient(rate_limit("30rps"))]
#[handler]
async fn unit() {}

#[resilient(rate_limit("30/60"))]
#[handler]
async fn seconds() {}

#[resilient(rate_limit("5/100ms"))]
#[handler]
async fn short_window() {}

#[resilient(rate_limit("1000/month"))]
#[handler]
async fn no_such_window() {}

#[resilient(rate_limit("100r/m", algorithm = "token_bucket", burst = 5))]
#[handler]
async fn with_options() {}

#[resilient(rate_limit(30, 60, name = "30-per-minute"))]
#[handler]
async fn option() {}

#[resilient(rate_limit("30/min"), flag("checkout"))]
#[handler]
async fn among_others() {}

#[resilient(rate_limit("login/address"), rate_limit(10, 1, name = "2fa"), rate_limit("per-minute", key = global))]
#[handler]
async fn fine() {}

fn main() {
    let _ = poem::Route::new()
        .at("/positional", poem::get(positional))
        .at("/spelled", poem::get(spelled))
        .at("/unit", poem::get(unit))
        .at("/seconds", poem::get(seconds))
        .at("/short_window", poem::get(short_window))
        .at("/no_such_window", poem::get(no_such_window))
        .at("/with_options", poem::get(with_options))
        .at("/option", poem::get(option))
        .at("/among_others", poem::get(among_others))
        .at("/fine", poem::get(fine));
}
