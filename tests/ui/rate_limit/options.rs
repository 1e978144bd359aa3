//! Each option takes its own kind of value.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit(30, 60, key = usr))]
#[handler]
async fn key() {}

#[resilient(rate_limit(30, 60, key = "ip"))]
#[handler]
async fn key_text() {}

#[resilient(rate_limit(30, 60, key = header))]
#[handler]
async fn key_header() {}

#[resilient(rate_limit(30, 60, key = header("x tenant")))]
#[handler]
async fn key_header_bad() {}

#[resilient(rate_limit(30, 60, key = header("x-a", "x-b")))]
#[handler]
async fn key_header_two() {}

#[resilient(rate_limit(30, 60, key(ip)))]
#[handler]
async fn key_called() {}

#[resilient(rate_limit(30, 60, key = ))]
#[handler]
async fn key_nothing() {}

#[resilient(rate_limit(30, 60, algorithm = "sliding-window"))]
#[handler]
async fn algorithm() {}

#[resilient(rate_limit(30, 60, algorithm = "leaky_bucket"))]
#[handler]
async fn algorithm_unknown() {}

#[resilient(rate_limit(30, 60, on_outage = "open"))]
#[handler]
async fn on_outage() {}

#[resilient(rate_limit(30, 60, on_outage = fail_open))]
#[handler]
async fn on_outage_word() {}

#[resilient(rate_limit(30, 60, name = "a b"))]
#[handler]
async fn name() {}

#[resilient(rate_limit(30, 60, deadline = "0ms"))]
#[handler]
async fn deadline() {}

#[resilient(rate_limit(30, 60, on_outrage = "fail_open"))]
#[handler]
async fn unknown() {}

#[resilient(rate_limit(30, 60, weight = 5))]
#[handler]
async fn unlike() {}

#[resilient(rate_limit(30, 60, key = ip, key = global))]
#[handler]
async fn twice() {}

fn main() {
    let _ = poem::Route::new()
        .at("/key", poem::get(key))
        .at("/key_text", poem::get(key_text))
        .at("/key_header", poem::get(key_header))
        .at("/key_header_bad", poem::get(key_header_bad))
        .at("/key_header_two", poem::get(key_header_two))
        .at("/key_called", poem::get(key_called))
        .at("/key_nothing", poem::get(key_nothing))
        .at("/algorithm", poem::get(algorithm))
        .at("/algorithm_unknown", poem::get(algorithm_unknown))
        .at("/on_outage", poem::get(on_outage))
        .at("/on_outage_word", poem::get(on_outage_word))
        .at("/name", poem::get(name))
        .at("/deadline", poem::get(deadline))
        .at("/unknown", poem::get(unknown))
        .at("/unlike", poem::get(unlike))
        .at("/twice", poem::get(twice));
}
