//! A deadline is assigned.

use poem::handler;
use resilience::resilient;

#[resilient(deadline("2s"))]
#[handler]
async fn called() {}

#[resilient(deadline)]
#[handler]
async fn bare() {}

#[resilient(deadline =)]
#[handler]
async fn nothing() {}

fn main() {
    let _ = poem::Route::new()
        .at("/called", poem::get(called))
        .at("/bare", poem::get(bare))
        .at("/nothing", poem::get(nothing));
}
