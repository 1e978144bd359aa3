//! A flag takes its arguments in parentheses.

use poem::handler;
use resilience::resilient;

#[resilient(flag = "checkout")]
#[handler]
async fn assigned() {}

#[resilient(flag)]
#[handler]
async fn bare() {}

fn main() {
    let _ = poem::Route::new()
        .at("/assigned", poem::get(assigned))
        .at("/bare", poem::get(bare));
}
