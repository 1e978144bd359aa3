//! A key is one of a few words, or the path of a fn from a request to a key.

use poem::handler;
use resilience::resilient;

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
        .at("/closure", poem::get(closure))
        .at("/call", poem::get(call))
        .at("/slip", poem::get(slip));
}
