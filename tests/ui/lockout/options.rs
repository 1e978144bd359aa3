//! Each option takes its own kind of value.

use poem::handler;
use resilience::resilient;

#[resilient(lockout(5, "15m", key = ip, on_outage = "fail-close"))]
#[handler]
async fn on_outage() {}

#[resilient(lockout(5, "15m", key = ip, mode = "dry_run"))]
#[handler]
async fn mode() {}

#[resilient(lockout(5, "15m", key = ip, name = "a b"))]
#[handler]
async fn name() {}

#[resilient(lockout(5, "15m", key = ip, deadline = "0ms"))]
#[handler]
async fn deadline() {}

#[resilient(lockout(5, "15m", key = ip, algorithm = "token_bucket"))]
#[handler]
async fn unknown() {}

#[resilient(lockout(5, "15m", key = ip, key = user))]
#[handler]
async fn key_twice() {}

fn main() {
    let _ = poem::Route::new()
        .at("/on_outage", poem::get(on_outage))
        .at("/mode", poem::get(mode))
        .at("/name", poem::get(name))
        .at("/deadline", poem::get(deadline))
        .at("/unknown", poem::get(unknown))
        .at("/key_twice", poem::get(key_twice));
}
