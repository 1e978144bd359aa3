//! A handler has one deadline.

use poem::handler;
use resilience::resilient;

#[resilient(deadline = "2s", deadline = "3s")]
#[handler]
async fn twice() {}

fn main() {
    let _ = poem::Route::new().at("/twice", poem::get(twice));
}
