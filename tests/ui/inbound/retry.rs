//! A request is handled once: its body can be read once.

use poem::{EndpointExt, Route, get, handler};
use resilience::{Resilience, pipeline::Pipeline};

#[handler]
async fn hello() {}

fn app(resilience: Resilience) -> impl poem::Endpoint {
    let pipeline = Pipeline::builder().retry(3).build();
    Route::new().at("/", get(hello)).with(resilience.inbound_pipeline(pipeline))
}

fn main() {
    let _ = app;
}
