//! A flag says what counts while it cannot be read.

use poem::handler;
use resilience::resilient;

#[resilient(flag("checkout"))]
#[handler]
async fn missing() {}

#[resilient(flag("checkout", blocks_when = "off", stale = "30s"))]
#[handler]
async fn missing_beside_others() {}

#[resilient(flag("checkout", default = "false"))]
#[handler]
async fn text() {}

#[resilient(flag("checkout", default = off))]
#[handler]
async fn word() {}

fn main() {
    let _ = poem::Route::new()
        .at("/missing", poem::get(missing))
        .at("/missing_beside_others", poem::get(missing_beside_others))
        .at("/text", poem::get(text))
        .at("/word", poem::get(word));
}
