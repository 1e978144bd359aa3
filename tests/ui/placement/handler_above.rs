//! `#[handler]` stands above, where it would extract before the guards have answered.

use poem::handler;
use resilience::resilient;

#[handler]
#[resilient(rate_limit(30, 60))]
async fn checkout() {}

fn main() {
    let _ = poem::get(checkout);
}
