//! Guards over a real Redis: the names of their keys, values that cannot be read, and servers that cannot serve.

mod cluster;
mod flags;
mod full;
mod key_names;

use std::time::Duration;

use poem::{Endpoint, Request};
use resilience::{Builder, Resilience, store::RedisStore};
use resilience_tests::{PATIENCE, eventually};

/// A runtime's settings over this store. Deadlines are long, so that a busy machine is not taken for an outage.
fn over(store: RedisStore) -> Builder {
    const DEADLINE: Duration = PATIENCE;
    Resilience::builder()
        .store(store)
        .auth_deadline(DEADLINE)
        .flag_deadline(DEADLINE)
        .rate_limit_deadline(DEADLINE)
        .lockout_deadline(DEADLINE)
}

/// Waits until connections serve.
async fn connected(store: &RedisStore) {
    eventually("a connection serves", async || store.is_connected()).await;
}

/// Sends a request: the status, and the body.
async fn ask(app: &impl Endpoint, request: Request) -> (u16, String) {
    let response = app.get_response(request).await;
    let status = response.status().as_u16();
    (status, response.into_body().into_string().await.expect("a text"))
}
