//! What only a store outside of the process goes through: outages, hostile contents, and the way back.

mod board;
mod contents;
mod flood;
mod limiter;
mod lockouts;
mod mixups;
mod old_server;
mod outage;

use std::time::Duration;

use resilience::{
    policy::Algorithm,
    store::{Quota, RedisStore, Store, StoreError, Take, Taken},
};
use resilience_tests::{PATIENCE, RedisServer, eventually};
use tokio::time::{Instant, error::Elapsed, timeout_at};

const MINUTE: Duration = Duration::from_secs(60);
/// So long that no boundary between windows is met by chance.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn quota(limit: u32) -> Quota {
    Quota {
        id: "q".to_owned(),
        limit,
        window: MINUTE,
        algorithm: Algorithm::SlidingWindow,
        burst: limit,
    }
}

async fn take(store: &RedisStore, quota: &Quota) -> Result<Taken, StoreError> {
    let client = "client";
    store
        .take(&[Take { quota, client, cost: 1 }], soon())
        .await
        .map(|taken| taken[0])
}

async fn connected(store: &RedisStore) {
    eventually("two connections serve", async || store.connections() == 2).await;
}

/// A store whose first connections serve already.
async fn connect(url: String) -> RedisStore {
    let store = RedisStore::new(url).unwrap();
    connected(&store).await;
    store
}

/// An operation as the chain runs it: with a deadline of its own, at which it is dropped.
async fn within<F: Future>(time: Duration, operation: impl FnOnce(Instant) -> F) -> Result<F::Output, Elapsed> {
    let deadline = Instant::now() + time;
    timeout_at(deadline, operation(deadline)).await
}

/// The ids of our connections, as the server knows them.
fn client_ids(server: &RedisServer) -> Vec<String> {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
    let ours = list.lines().filter(|line| !line.contains("cmd=client|list"));
    ours.filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}
