//! `auth` says what happens in an outage.

use poem::handler;
use resilience::resilient;

#[resilient(auth)]
#[handler]
async fn bare() {}

#[resilient(auth())]
#[handler]
async fn no_word() {}

#[resilient(auth(header = "x-api-key"))]
#[handler]
async fn only_options() {}

#[resilient(auth("fail_closed", "x-api-key"))]
#[handler]
async fn two_words() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/no_word", poem::get(no_word))
        .at("/only_options", poem::get(only_options))
        .at("/two_words", poem::get(two_words));
}
