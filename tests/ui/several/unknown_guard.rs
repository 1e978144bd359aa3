//! An unknown guard is named, with the nearest known one or all of them.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limt(30, 60))]
#[handler]
async fn near() {}

#[resilient(Deadline = "2s")]
#[handler]
async fn nearer() {}

#[resilient(atuh)]
#[handler]
async fn bare() {}

#[resilient(retry(3))]
#[handler]
async fn far() {}

#[resilient(concurrency(64))]
#[handler]
async fn later() {}

#[resilient(poem::guard(X))]
#[handler]
async fn path() {}

#[resilient(30)]
#[handler]
async fn number() {}

#[resilient("auth")]
#[handler]
async fn text() {}

fn main() {
    let _ = poem::Route::new()
        .at("/near", poem::get(near))
        .at("/nearer", poem::get(nearer))
        .at("/bare", poem::get(bare))
        .at("/far", poem::get(far))
        .at("/later", poem::get(later))
        .at("/path", poem::get(path))
        .at("/number", poem::get(number))
        .at("/text", poem::get(text));
}
