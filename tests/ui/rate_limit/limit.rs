//! A limit is a literal from 1 to `u32::MAX`.

use poem::handler;
use resilience::resilient;

const LIMIT: u32 = 30;

#[resilient(rate_limit(0, 60))]
#[handler]
async fn zero() {}

#[resilient(rate_limit(-1, 60))]
#[handler]
async fn negative() {}

#[resilient(rate_limit(4_294_967_296, 60))]
#[handler]
async fn overflowing() {}

#[resilient(rate_limit(340282366920938463463374607431768211456, 60))]
#[handler]
async fn huge() {}

#[resilient(rate_limit(1.5, 60))]
#[handler]
async fn float() {}

#[resilient(rate_limit(-1.5, 60))]
#[handler]
async fn negative_float() {}

#[resilient(rate_limit(LIMIT, 60))]
#[handler]
async fn constant() {}

#[resilient(rate_limit(10 + 20, 60))]
#[handler]
async fn sum() {}

#[resilient(rate_limit("30", 60))]
#[handler]
async fn text() {}

#[resilient(rate_limit(30u64, 60))]
#[handler]
async fn suffix() {}

#[resilient(rate_limit(true, 60))]
#[handler]
async fn boolean() {}

fn main() {
    let _ = LIMIT;
    let _ = poem::Route::new()
        .at("/zero", poem::get(zero))
        .at("/negative", poem::get(negative))
        .at("/overflowing", poem::get(overflowing))
        .at("/huge", poem::get(huge))
        .at("/float", poem::get(float))
        .at("/negative_float", poem::get(negative_float))
        .at("/constant", poem::get(constant))
        .at("/sum", poem::get(sum))
        .at("/text", poem::get(text))
        .at("/suffix", poem::get(suffix))
        .at("/boolean", poem::get(boolean));
}
