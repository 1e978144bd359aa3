//! A bad header, a bad deadline, an option of another guard, one option twice.

use poem::handler;
use resilience::resilient;

#[resilient(auth("fail_closed", header = "x api key"))]
#[handler]
async fn space() {}

#[resilient(auth("fail_closed", header = ""))]
#[handler]
async fn empty() {}

#[resilient(auth("fail_closed", deadline = 150))]
#[handler]
async fn bad_deadline() {}

#[resilient(auth("fail_closed", name = "x-api-key"))]
#[handler]
async fn foreign() {}

#[resilient(auth("fail_closed", header = "x-api-key", header = "authorization"))]
#[handler]
async fn twice() {}

fn main() {
    let _ = poem::Route::new()
        .at("/space", poem::get(space))
        .at("/empty", poem::get(empty))
        .at("/bad_deadline", poem::get(bad_deadline))
        .at("/foreign", poem::get(foreign))
        .at("/twice", poem::get(twice));
}
