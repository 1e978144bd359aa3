//! Nothing but a check is a check: not a token's text, not a question that names nobody.

use poem::{Request, Route};
use resilience::sharing::{SharedBreakers, admin::BreakerAdmin};

fn text(breakers: SharedBreakers) -> Route {
    Route::new().nest("/admin/breakers", BreakerAdmin::new(breakers, "3f1c9a04e7b25d68"))
}

fn yes(breakers: SharedBreakers) -> Route {
    Route::new().nest("/admin/breakers", BreakerAdmin::new(breakers, |_: &Request| true))
}

fn main() {
    let _ = (text, yes);
}
