//! An `auth` that fails open is an authentication bypass.

use poem::handler;
use resilience::resilient;

#[resilient(auth = "fail_open")]
#[handler]
async fn assigned() {}

#[resilient(auth("fail_open", header = "x-api-key"))]
#[handler]
async fn called() {}

#[resilient(auth = "Fail-Open")]
#[handler]
async fn spelled_otherwise() {}

fn main() {
    let _ = poem::Route::new()
        .at("/assigned", poem::get(assigned))
        .at("/called", poem::get(called))
        .at("/spelled_otherwise", poem::get(spelled_otherwise));
}
