//! A key is one of a few words, or the path of a fn from a request to a key.

use poem::handler;
use resilience::resilient;

mod keys {
    pub fn device(request: &poem::Request) -> String {
        request.uri().path().to_owned()
    }
}

#[resilient(rate_limit(30, 60, key = keys::tenant))]
#[handler]
async fn no_such_fn() {}

#[resilient(rate_limit(30, 60, key = keys::device))]
#[handler]
async fn wrong_signature() {}

#[resilient(rate_limit(30, 60, key = |_| None))]
#[handler]
async fn closure() {}

#[resilient(rate_limit(30, 60, key = keys::device()))]
#[handler]
async fn call() {}

#[resilient(rate_limit(30, 60, key = globl))]
#[handler]
async fn slip() {}

fn main() {
    let _ = poem::Route::new()
        .at("/no_such_fn", poem::get(no_such_fn))
        .at("/wrong_signature", poem::get(wrong_signature))
        .at("/closure", poem::get(closure))
        .at("/call", poem::get(call))
        .at("/slip", poem::get(slip));
}
