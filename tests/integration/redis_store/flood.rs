//! What a client that is over its quota costs Redis.

use poem::{Endpoint, EndpointExt, Request, handler};
use resilience::{Resilience, resilient};
use resilience_tests::RedisServer;

use super::connect;

#[resilient(rate_limit(2, "1d", key = header("x-tenant"), deadline = "5s"))]
#[handler]
async fn limited() {}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    calls
        .map(|line| {
            let (_, calls) = line.split_once("calls=").expect("it says how many");
            let (calls, _) = calls.split_once(',').expect("more follows");
            calls.parse::<u64>().expect("a number")
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_client_costs_no_commands() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let resilience = Resilience::builder().store(store).build().expect("valid settings");
    let app = limited.with(resilience);
    let status = async |tenant: &str| {
        let request = Request::builder().header("x-tenant", tenant).finish();
        app.get_response(request).await.status().as_u16()
    };
    for expected in [200, 200, 429] {
        assert_eq!(status("a").await, expected);
    }
    let before = scripts(&server);
    // The second was told that it took the last.
    assert!(before >= 2, "{before}");
    for _ in 0..500 {
        assert_eq!(status("a").await, 429);
    }
    assert_eq!(scripts(&server), before);
    assert_eq!(status("b").await, 200);
    assert_eq!(scripts(&server), before + 1);
}
