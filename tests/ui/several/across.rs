//! Mistakes in the guards, between them, and in the fn show together.

use poem::handler;
use resilience::{Identity, resilient};

#[resilient(rate_limit(30, 60, key = user, burst = 3), rate_limit(30, 60, key = user))]
#[resilient(deadline = "2s")]
async fn checkout(Identity(user): Identity) -> String {
    user
}

#[resilient]
#[handler]
async fn empty(Identity(user): Identity) -> String {
    user
}

fn main() {
    let _ = (checkout, poem::get(empty));
}
