//! Only a token bucket has a burst, a literal from 1 to the limit.

use poem::handler;
use resilience::resilient;

const NUMBER: u32 = 5;

#[resilient(rate_limit(30, 60, burst = 5))]
#[handler]
async fn sliding_window() {}

#[resilient(rate_limit(30, 60, burst = 5, algorithm = "fixed_window"))]
#[handler]
async fn fixed_window() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = 31))]
#[handler]
async fn above_the_limit() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = 0))]
#[handler]
async fn zero() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = -1))]
#[handler]
async fn negative() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = 1.5))]
#[handler]
async fn float() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = "5"))]
#[handler]
async fn text() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = NUMBER))]
#[handler]
async fn constant() {}

#[resilient(rate_limit(0, 60, burst = 0, cost = 0), rate_limit(30, 60, burst = 31, cost = 32))]
#[handler]
async fn several() {}

fn main() {
    let _ = NUMBER;
    let _ = poem::Route::new()
        .at("/sliding_window", poem::get(sliding_window))
        .at("/fixed_window", poem::get(fixed_window))
        .at("/above_the_limit", poem::get(above_the_limit))
        .at("/zero", poem::get(zero))
        .at("/negative", poem::get(negative))
        .at("/float", poem::get(float))
        .at("/text", poem::get(text))
        .at("/constant", poem::get(constant))
        .at("/several", poem::get(several));
}
