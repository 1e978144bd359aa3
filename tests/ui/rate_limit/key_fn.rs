//! A key of ones own is a fn from a request to a key.

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

fn main() {
    let _ = poem::Route::new()
        .at("/no_such_fn", poem::get(no_such_fn))
        .at("/wrong_signature", poem::get(wrong_signature));
}
