//! A server from before Redis 6: it knows no HELLO, so it never tells that a connection ends.

use std::time::Duration;

use resilience::store::{Probe, Store, StoreAdmin};
use resilience_tests::{RedisServer, eventually};

use super::{connect, quota, soon, take, within};

fn old_server() -> RedisServer {
    RedisServer::start_with(&["--rename-command", "HELLO", ""])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_in_the_older_protocol() {
    let server = old_server();
    let store = connect(server.url()).await;
    store.add_api_key("letmein", "user-42").await.unwrap();
    store.set_flag("checkout", true).await.unwrap();
    assert_eq!(
        store.identity("letmein", soon()).await.unwrap().as_deref(),
        Some("user-42")
    );
    assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
    assert!(take(&store, &quota(1)).await.unwrap().allowed);
    assert!(!take(&store, &quota(1)).await.unwrap().allowed);
    store.probe(Probe::Write, soon()).await.unwrap();
    store.probe(Probe::Read, soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_it_serves_once_its_dead_connections_were_met() {
    let mut server = old_server();
    let store = connect(server.url()).await;
    server.kill();
    server.restart();
    // Each operation that meets a dead connection retires it: there are two.
    eventually("an operation succeeds", async || {
        let asked = within(Duration::from_secs(1), |deadline| store.flag("checkout", deadline)).await;
        matches!(asked, Ok(Ok(None)))
    })
    .await;
    for _ in 0..100 {
        eventually("it goes on serving", async || {
            store.flag("checkout", soon()).await.is_ok()
        })
        .await;
    }
    eventually("the pool is whole", async || store.connections() == 2).await;
}
