//! `auth` knows one word.

use poem::handler;
use resilience::resilient;

#[resilient(auth = "fail_close")]
#[handler]
async fn typo() {}

#[resilient(auth = "off")]
#[handler]
async fn off() {}

#[resilient(auth = fail_closed)]
#[handler]
async fn no_quotes() {}

#[resilient(auth = true)]
#[handler]
async fn boolean() {}

#[resilient(auth = )]
#[handler]
async fn nothing() {}

fn main() {
    let _ = poem::Route::new()
        .at("/typo", poem::get(typo))
        .at("/off", poem::get(off))
        .at("/no_quotes", poem::get(no_quotes))
        .at("/boolean", poem::get(boolean))
        .at("/nothing", poem::get(nothing));
}
