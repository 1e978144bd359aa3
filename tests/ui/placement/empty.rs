//! An attribute that guards nothing is a mistake.

use poem::handler;
use resilience::resilient;

#[resilient]
#[handler]
async fn bare() {}

#[resilient()]
#[handler]
async fn parentheses() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/parentheses", poem::get(parentheses));
}
