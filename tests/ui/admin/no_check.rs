//! There are no routes for operators without a check of who is asking.

use poem::Route;
use resilience::sharing::{SharedBreakers, admin::BreakerAdmin};

fn forgotten(breakers: SharedBreakers) -> Route {
    Route::new().nest("/admin/breakers", BreakerAdmin::new(breakers))
}

fn main() {
    let _ = forgotten;
}
