//! A quota has a limit and a window, in this order, in parentheses.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit)]
#[handler]
async fn bare() {}

#[resilient(rate_limit = 30)]
#[handler]
async fn assigned() {}

#[resilient(rate_limit())]
#[handler]
async fn nothing() {}

#[resilient(rate_limit(30))]
#[handler]
async fn no_window() {}

#[resilient(rate_limit(30, 60, 5))]
#[handler]
async fn third() {}

#[resilient(rate_limit(30, 60, ip))]
#[handler]
async fn third_word() {}

#[resilient(rate_limit(30 60))]
#[handler]
async fn no_comma() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/assigned", poem::get(assigned))
        .at("/nothing", poem::get(nothing))
        .at("/no_window", poem::get(no_window))
        .at("/third", poem::get(third))
        .at("/third_word", poem::get(third_word))
        .at("/no_comma", poem::get(no_comma));
}
