//! Only a fn is a handler.

use resilience::resilient;

#[resilient(rate_limit(30, 60))]
struct Checkout;

/// Documented.
#[resilient(rate_limit(0, 60))]
pub mod api {}

trait Api {
    #[resilient(rate_limit(30, 60))]
    fn checkout();
}

impl Api for Checkout {
    fn checkout() {}
}

fn main() {
    let _ = Checkout::checkout;
}
