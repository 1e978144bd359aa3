//! A cost is a literal from 1 to the limit, and to the burst.

use poem::handler;
use resilience::resilient;

const NUMBER: u32 = 5;

#[resilient(rate_limit(30, 60, cost = 31))]
#[handler]
async fn above_the_limit() {}

#[resilient(rate_limit(30, 60, algorithm = "fixed_window", cost = 31))]
#[handler]
async fn fixed_window() {}

#[resilient(rate_limit(30, 60, algorithm = "token_bucket", burst = 5, cost = 6))]
#[handler]
async fn above_the_burst() {}

#[resilient(rate_limit(30, 60, cost = 0))]
#[handler]
async fn zero() {}

#[resilient(rate_limit(30, 60, cost = -1))]
#[handler]
async fn negative() {}

#[resilient(rate_limit(30, 60, cost = 1.5))]
#[handler]
async fn float() {}

#[resilient(rate_limit(30, 60, cost = "5"))]
#[handler]
async fn text() {}

#[resilient(rate_limit(30, 60, cost = NUMBER))]
#[handler]
async fn constant() {}

#[resilient(rate_limit(30, 60, cost = 5u64))]
#[handler]
async fn suffix() {}

fn main() {
    let _ = NUMBER;
    let _ = poem::Route::new()
        .at("/above_the_limit", poem::get(above_the_limit))
        .at("/fixed_window", poem::get(fixed_window))
        .at("/above_the_burst", poem::get(above_the_burst))
        .at("/zero", poem::get(zero))
        .at("/negative", poem::get(negative))
        .at("/float", poem::get(float))
        .at("/text", poem::get(text))
        .at("/constant", poem::get(constant))
        .at("/suffix", poem::get(suffix));
}
