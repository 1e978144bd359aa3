//! One tally counts an attempt once.

use poem::handler;
use resilience::resilient;

mod keys {
    pub fn device(_: &poem::Request) -> Option<String> {
        None
    }
}

#[resilient(lockout(5, "15m", key = ip), lockout(20, "1h", key = ip))]
#[handler]
async fn same_key() {}

#[resilient(lockout(5, "15m", key = account("json:/username")), lockout(20, "1h", key = account("json:/username"), name = "long"))]
#[handler]
async fn same_field() {}

#[resilient(lockout(5, "15m", key = keys::device), lockout(20, "1h", key = keys::device))]
#[handler]
async fn same_fn() {}

#[resilient(lockout(5, "15m", key = account("json:/username"), name = "login"), lockout(20, "15m", key = ip, name = "login"))]
#[handler]
async fn same_name() {}

#[resilient(lockout(5, "15m", key = account("json:/username")), lockout(5, "15m", key = account("form:username")))]
#[handler]
async fn two_bodies() {}

#[resilient(lockout(5, "15m", key = account("json:/username")), lockout(5, "15m", key = account("json:/email")), lockout(20, "15m", key = ip))]
#[handler]
async fn fine() {}

fn main() {
    let _ = poem::Route::new()
        .at("/same_key", poem::get(same_key))
        .at("/same_field", poem::get(same_field))
        .at("/same_fn", poem::get(same_fn))
        .at("/same_name", poem::get(same_name))
        .at("/two_bodies", poem::get(two_bodies))
        .at("/fine", poem::get(fine));
}
