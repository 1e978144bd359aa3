//! `Identity` needs somebody who was verified.

use poem::{Result, handler};
use resilience::{Identity, resilient};

#[resilient(rate_limit(30, 60))]
#[handler]
async fn bare(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn by_path(text: String, user: resilience::Identity) -> String {
    text + &user.0
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn maybe(_: Option<Identity>) {}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn why_not(_: Result<Identity>) {}

// A slip in `auth` is one mistake, not two.
#[resilient(auht = "fail_closed", rate_limit(30, 60, key = user))]
#[handler]
async fn misspelled(_: Identity) {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/path", poem::post(by_path))
        .at("/maybe", poem::get(maybe))
        .at("/why", poem::get(why_not))
        .at("/misspelled", poem::get(misspelled));
}
