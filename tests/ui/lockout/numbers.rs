//! Attempts are 1 to 1,000, and locks rise from 1 ms to 366 days.

use poem::handler;
use resilience::resilient;

#[resilient(lockout(0, "15m", key = ip))]
#[handler]
async fn no_attempts() {}

#[resilient(lockout(1_001, "15m", key = ip))]
#[handler]
async fn too_many() {}

#[resilient(lockout(-5, "15m", key = ip))]
#[handler]
async fn negative() {}

#[resilient(lockout(5, 0, key = ip))]
#[handler]
async fn no_time() {}

#[resilient(lockout(5, "0s, 1m", key = ip))]
#[handler]
async fn no_time_among_others() {}

#[resilient(lockout(5, "1h, 367d", key = ip))]
#[handler]
async fn too_long() {}

#[resilient(lockout(5, "1h, 15m", key = ip))]
#[handler]
async fn falling() {}

#[resilient(lockout(5, "1m, 60s", key = ip))]
#[handler]
async fn level() {}

#[resilient(lockout(5, "15", key = ip))]
#[handler]
async fn no_unit() {}

#[resilient(lockout(5, "1m, 5m,", key = ip))]
#[handler]
async fn trailing_comma() {}

#[resilient(lockout(0, "never", key = ip))]
#[handler]
async fn both() {}

fn main() {
    let _ = poem::Route::new()
        .at("/no_attempts", poem::get(no_attempts))
        .at("/too_many", poem::get(too_many))
        .at("/negative", poem::get(negative))
        .at("/no_time", poem::get(no_time))
        .at("/no_time_among_others", poem::get(no_time_among_others))
        .at("/too_long", poem::get(too_long))
        .at("/falling", poem::get(falling))
        .at("/level", poem::get(level))
        .at("/no_unit", poem::get(no_unit))
        .at("/trailing_comma", poem::get(trailing_comma))
        .at("/both", poem::get(both));
}
