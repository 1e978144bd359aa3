//! Each option takes its own kind of value.

use poem::handler;
use resilience::resilient;

#[resilient(flag("checkout", default = false, blocks_when = "open"))]
#[handler]
async fn blocks() {}

#[resilient(flag("checkout", default = false, blocks_when = true))]
#[handler]
async fn blocks_bool() {}

#[resilient(flag("checkout", default = false, stale = "30"))]
#[handler]
async fn stale() {}

#[resilient(flag("checkout", default = false, stale = "367d"))]
#[handler]
async fn stale_long() {}

#[resilient(flag("checkout", default = false, deadline = "2h"))]
#[handler]
async fn deadline() {}

#[resilient(flag("checkout", defualt = false))]
#[handler]
async fn unknown() {}

#[resilient(flag("checkout", default(false)))]
#[handler]
async fn in_parentheses() {}

#[resilient(flag("checkout", default = false, default = true))]
#[handler]
async fn twice() {}

fn main() {
    let _ = poem::Route::new()
        .at("/blocks", poem::get(blocks))
        .at("/blocks_bool", poem::get(blocks_bool))
        .at("/stale", poem::get(stale))
        .at("/stale_long", poem::get(stale_long))
        .at("/deadline", poem::get(deadline))
        .at("/unknown", poem::get(unknown))
        .at("/in_parentheses", poem::get(in_parentheses))
        .at("/twice", poem::get(twice));
}
