//! A quota by user needs somebody who was verified.

use poem::handler;
use resilience::resilient;

#[resilient(rate_limit(30, 60, key = user))]
#[handler]
async fn user() {}

#[resilient(rate_limit(0, 60, key = user))]
#[handler]
async fn beside_a_mistake() {}

fn main() {
    let _ = poem::Route::new()
        .at("/user", poem::get(user))
        .at("/beside_a_mistake", poem::get(beside_a_mistake));
}
