//! A lockout has attempts and durations, in this order, in parentheses.

use poem::handler;
use resilience::resilient;

#[resilient(lockout)]
#[handler]
async fn bare() {}

#[resilient(lockout = 5)]
#[handler]
async fn assigned() {}

#[resilient(lockout())]
#[handler]
async fn nothing() {}

#[resilient(lockout(5, key = ip))]
#[handler]
async fn no_duration() {}

#[resilient(lockout(5, "1m", "5m", key = ip))]
#[handler]
async fn third() {}

#[resilient(lock_out(5, "1m", key = ip))]
#[handler]
async fn typo() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/assigned", poem::get(assigned))
        .at("/nothing", poem::get(nothing))
        .at("/no_duration", poem::get(no_duration))
        .at("/third", poem::get(third))
        .at("/typo", poem::get(typo));
}
