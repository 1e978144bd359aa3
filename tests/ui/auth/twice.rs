//! A handler has one `auth`.

use poem::handler;
use resilience::resilient;

#[resilient(auth = "fail_closed", auth = "fail_closed")]
#[handler]
async fn same() {}

#[resilient(auth = "fail_closed", auth("fail_closed", header = "x-api-key"))]
#[handler]
async fn both_forms() {}

fn main() {
    let _ = poem::Route::new()
        .at("/same", poem::get(same))
        .at("/both_forms", poem::get(both_forms));
}
