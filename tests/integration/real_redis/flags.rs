//! Flags that an operator wrote by hand.

use poem::{EndpointExt, Request, handler};
use resilience::{resilient, store::RedisStore};
use resilience_tests::RedisServer;

use super::{ask, connected, over};

#[resilient(flag("hand-written", default = false))]
#[handler]
async fn killable() {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_misses_kill_and_nonsense_degrades_until_it_is_corrected() {
    let server = RedisServer::start();
    let store = RedisStore::new(server.url()).unwrap();
    connected(&store).await;
    let resilience = over(store).build().unwrap();
    let app = killable.with(resilience.clone());
    for word in ["on ", "1\n", "yes", "Enabled"] {
        server.cli(&["SET", "flag:hand-written", word]);
        assert_eq!(ask(&app, Request::default()).await.0, 503, "{word:?}");
    }
    server.cli(&["SET", "flag:hand-written", "kill it"]);
    assert_eq!(ask(&app, Request::default()).await.0, 200);
    let health = resilience.health().await;
    assert!(health.is_degraded() && health.store_reachable);
    assert_eq!(health.unreadable_flags, ["hand-written"]);

    server.cli(&["SET", "flag:hand-written", "on"]);
    assert_eq!(ask(&app, Request::default()).await.0, 503);
    assert!(!resilience.health().await.is_degraded());
}
