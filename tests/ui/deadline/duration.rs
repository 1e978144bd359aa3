//! A deadline is text with a unit, from 1 ms to 1 h.

use poem::handler;
use resilience::resilient;

#[resilient(deadline = 2)]
#[handler]
async fn number() {}

#[resilient(deadline = 0.5)]
#[handler]
async fn float() {}

#[resilient(deadline = -2)]
#[handler]
async fn negative() {}

#[resilient(deadline = "2")]
#[handler]
async fn no_unit() {}

#[resilient(deadline = "0s")]
#[handler]
async fn zero() {}

#[resilient(deadline = "61m")]
#[handler]
async fn too_long() {}

#[resilient(deadline = BUDGET)]
#[handler]
async fn constant() {}

#[resilient(deadline = "soon")]
#[handler]
async fn nonsense() {}

#[resilient(deadline = "-2s")]
#[handler]
async fn negative_text() {}

fn main() {
    let _ = poem::Route::new()
        .at("/number", poem::get(number))
        .at("/float", poem::get(float))
        .at("/negative", poem::get(negative))
        .at("/no_unit", poem::get(no_unit))
        .at("/zero", poem::get(zero))
        .at("/too_long", poem::get(too_long))
        .at("/constant", poem::get(constant))
        .at("/nonsense", poem::get(nonsense))
        .at("/negative_text", poem::get(negative_text));
}
