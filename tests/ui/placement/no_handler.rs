//! `#[handler]` is missing.

use resilience::resilient;

#[resilient(rate_limit(30, 60))]
async fn checkout() {}

fn main() {
    let _ = checkout();
}
