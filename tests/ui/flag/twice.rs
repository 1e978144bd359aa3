//! A flag is asked once.

use poem::handler;
use resilience::resilient;

#[resilient(flag("checkout", default = false), flag("checkout", default = false))]
#[handler]
async fn same() {}

#[resilient(
    flag("checkout", default = false),
    flag("checkout", default = true, blocks_when = "off")
)]
#[handler]
async fn other_default() {}

fn main() {
    let _ = poem::Route::new()
        .at("/same", poem::get(same))
        .at("/other_default", poem::get(other_default));
}
