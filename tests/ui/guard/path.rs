//! `guard` takes one path.

use poem::handler;
use resilience::resilient;

#[resilient(guard)]
#[handler]
async fn bare() {}

#[resilient(guard = GUARD)]
#[handler]
async fn assigned() {}

#[resilient(guard())]
#[handler]
async fn nothing() {}

#[resilient(guard("GUARD"))]
#[handler]
async fn text() {}

#[resilient(guard(make_guard()))]
#[handler]
async fn called() {}

#[resilient(guard(ONE, TWO))]
#[handler]
async fn two() {}

#[resilient(guard(1))]
#[handler]
async fn number() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/assigned", poem::get(assigned))
        .at("/nothing", poem::get(nothing))
        .at("/text", poem::get(text))
        .at("/called", poem::get(called))
        .at("/two", poem::get(two))
        .at("/number", poem::get(number));
}
