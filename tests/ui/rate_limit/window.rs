//! A window is a literal number of seconds, or text with a unit.

use poem::handler;
use resilience::resilient;

const WINDOW: u32 = 60;

#[resilient(rate_limit(30, 0))]
#[handler]
async fn zero() {}

#[resilient(rate_limit(30, "0m"))]
#[handler]
async fn zero_text() {}

#[resilient(rate_limit(30, -60))]
#[handler]
async fn negative() {}

#[resilient(rate_limit(30, 4_294_967_296))]
#[handler]
async fn overflowing() {}

#[resilient(rate_limit(30, 31_622_401))]
#[handler]
async fn too_long() {}

#[resilient(rate_limit(30, "367d"))]
#[handler]
async fn too_long_text() {}

#[resilient(rate_limit(30, 0.5))]
#[handler]
async fn float() {}

#[resilient(rate_limit(30, WINDOW))]
#[handler]
async fn constant() {}

#[resilient(rate_limit(30, "60"))]
#[handler]
async fn no_unit() {}

#[resilient(rate_limit(30, "1min"))]
#[handler]
async fn unknown_unit() {}

#[resilient(rate_limit(30, "1.5s"))]
#[handler]
async fn fraction() {}

#[resilient(rate_limit(30, "1 m"))]
#[handler]
async fn space() {}

#[resilient(rate_limit(30, ""))]
#[handler]
async fn empty() {}

#[resilient(rate_limit(30, 60i32))]
#[handler]
async fn suffix() {}

fn main() {
    let _ = WINDOW;
    let _ = poem::Route::new()
        .at("/zero", poem::get(zero))
        .at("/zero_text", poem::get(zero_text))
        .at("/negative", poem::get(negative))
        .at("/overflowing", poem::get(overflowing))
        .at("/too_long", poem::get(too_long))
        .at("/too_long_text", poem::get(too_long_text))
        .at("/float", poem::get(float))
        .at("/constant", poem::get(constant))
        .at("/no_unit", poem::get(no_unit))
        .at("/unknown_unit", poem::get(unknown_unit))
        .at("/fraction", poem::get(fraction))
        .at("/space", poem::get(space))
        .at("/empty", poem::get(empty))
        .at("/suffix", poem::get(suffix));
}
