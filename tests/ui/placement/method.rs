//! A handler has no `self`.

use resilience::resilient;

struct Api;

impl Api {
    #[resilient(rate_limit(30, 60))]
    async fn checkout(&self) {}

    #[resilient(rate_limit(30, 60))]
    async fn buy(self: std::sync::Arc<Self>) {}
}

fn main() {
    let _ = (Api::checkout, Api::buy);
}
