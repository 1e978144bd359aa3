//! Every mistake of one attribute shows in one compile.

use poem::handler;
use resilience::{Identity, resilient};

#[resilient(
    auth = "fail_open",
    flag("checkout"),
    flag("beta", defualt = false, stale = 30),
    rate_limit(0, "1 minute", key = usr, on_outage = "fail_opne"),
    rate_limit(-30, 0),
    rate_limt(30, 60),
    ,
    lockout(5000, "15m"),
    deadline = 2
    breaker = "my breaker",
    deadline = "3s",
    "checkout",
    guard(1 + 1),
    == 3,
)]
#[handler]
async fn checkout(Identity(user): Identity) -> String {
    user
}

fn main() {
    let _ = poem::get(checkout);
}
