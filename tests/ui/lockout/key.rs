//! Whose attempts count is said outright, and nobody can choose it for himself.

use poem::handler;
use resilience::resilient;

#[resilient(lockout(5, "15m"))]
#[handler]
async fn missing() {}

#[resilient(auth = "fail_closed", lockout(5, "15m"))]
#[handler]
async fn missing_beside_auth() {}

#[resilient(lockout(5, "15m", key = user))]
#[handler]
async fn user_without_auth() {}

#[resilient(lockout(5, "15m", key = acount("json:/username")))]
#[handler]
async fn typo() {}

#[resilient(lockout(5, "15m", key = usr))]
#[handler]
async fn typo_word() {}

#[resilient(lockout(5, "15m", key = "ip"))]
#[handler]
async fn text() {}

#[resilient(lockout(5, "15m", key = global))]
#[handler]
async fn global() {}

#[resilient(lockout(5, "15m", key = header("x-device")))]
#[handler]
async fn header() {}

#[resilient(lockout(5, "15m", key(ip)))]
#[handler]
async fn called() {}

#[resilient(lockout(5, "15m", key = ))]
#[handler]
async fn nothing() {}

fn main() {
    let _ = poem::Route::new()
        .at("/missing", poem::get(missing))
        .at("/missing_beside_auth", poem::get(missing_beside_auth))
        .at("/user_without_auth", poem::get(user_without_auth))
        .at("/typo", poem::get(typo))
        .at("/typo_word", poem::get(typo_word))
        .at("/text", poem::get(text))
        .at("/global", poem::get(global))
        .at("/header", poem::get(header))
        .at("/called", poem::get(called))
        .at("/nothing", poem::get(nothing));
}
