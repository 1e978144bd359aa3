//! A quota with a name only: its numbers are defined elsewhere.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit("api", algorithm = "token_bucket", burst = 5))]
#[handler]
async fn numbers() {}

#[resilient(rate_limit("api", name = "other"))]
#[handler]
async fn two_names() {}

#[resilient(rate_limit("api", 60))]
#[handler]
async fn with_window() {}

#[resilient(rate_limit("a b"))]
#[handler]
async fn bad_name() {}

#[resilient(rate_limit("30"))]
#[handler]
async fn a_number() {}

#[resilient(rate_limit("api"), rate_limit("api", key = global))]
#[handler]
async fn twice() {}

#[resilient(rate_limit("api"), rate_limit(30, 60, name = "api"))]
#[handler]
async fn with_and_without_numbers() {}

#[resilient(rate_limit("api", key = user))]
#[handler]
async fn user_without_auth() {}

#[resilient(rate_limit("api"), rate_limit("daily", cost = 5, on_outage = "fail_local", deadline = "50ms", key = global))]
#[handler]
async fn fine() {}

fn main() {
    let _ = poem::Route::new()
        .at("/numbers", poem::get(numbers))
        .at("/two_names", poem::get(two_names))
        .at("/with_window", poem::get(with_window))
        .at("/bad_name", poem::get(bad_name))
        .at("/a_number", poem::get(a_number))
        .at("/twice", poem::get(twice))
        .at("/with_and_without_numbers", poem::get(with_and_without_numbers))
        .at("/user_without_auth", poem::get(user_without_auth))
        .at("/fine", poem::get(fine));
}
