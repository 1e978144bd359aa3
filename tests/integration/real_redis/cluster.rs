//! A Redis in cluster mode, which is refused.

use bb8_redis::{RedisConnectionManager, bb8};
use poem::{EndpointExt, Request, Response, handler, http::StatusCode};
use resilience::{
    Resilience,
    breaker::State,
    resilient,
    store::{Probe, RedisStore, Store, StoreErrorKind},
};
use resilience_tests::{PATIENCE, RedisServer, eventually};
use tokio::time::Instant;

use super::{ask, connected, over};
use crate::chain::outage_log::Log;

#[resilient(auth = "fail_closed")]
#[handler]
async fn private() {}

#[resilient(lockout(5, "15m", key = user_agent))]
#[handler]
async fn login() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

#[resilient(rate_limit(1, 60, key = user_agent, on_outage = "fail_closed"))]
#[handler]
async fn limited() {}

/// Two quotas whose keys lie in different slots.
#[resilient(rate_limit(1, 60, key = header("x-tenant"), on_outage = "fail_closed"), rate_limit(1, 60, key = global))]
#[handler]
async fn limited_twice() {}

fn user_agent(request: &Request) -> Option<String> {
    Some(request.header("user-agent").unwrap_or("none").to_owned())
}

fn request() -> Request {
    Request::builder().header("x-api-key", "letmein").finish()
}

fn code(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).expect("a JSON body");
    body["error"].as_str().expect("a code").to_owned()
}

async fn refusal<E: poem::Endpoint<Output = Response>>(app: &E) -> (u16, String) {
    let (status, body) = ask(app, request()).await;
    (status, code(&body))
}

#[tokio::test]
async fn guards_answer_as_in_an_outage_and_the_log_says_why() {
    let log = Log::start();
    let server = RedisServer::start_cluster();
    let store = RedisStore::new(server.url()).unwrap();
    let resilience = over(store.clone()).build().unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    let refused = |lines: Vec<String>, level: &str| {
        let says = |line: &&String| {
            line.starts_with(level) && line.contains("runs in cluster mode") && line.contains(&address)
        };
        lines.iter().filter(says).count()
    };
    eventually("the cluster is refused", async || {
        refused(log.lines_of_stores(), "ERROR") > 0
    })
    .await;

    let unavailable = |code: &str| (503, code.to_owned());
    assert_eq!(
        refusal(&private.with(resilience.clone())).await,
        unavailable("auth_unavailable")
    );
    assert_eq!(
        refusal(&login.with(resilience.clone())).await,
        unavailable("lockout_unavailable")
    );
    for _ in 0..3 {
        assert_eq!(
            refusal(&limited.with(resilience.clone())).await,
            unavailable("limiter_unavailable")
        );
        assert_eq!(
            refusal(&limited_twice.with(resilience.clone())).await,
            unavailable("limiter_unavailable")
        );
    }
    let health = resilience.health().await;
    assert!(!health.store_reachable && health.is_degraded());

    let error = store.probe(Probe::Write, Instant::now() + PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    for words in [
        "cluster mode",
        "not supported yet",
        "different slots",
        "cluster-enabled no",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(!store.is_connected());
    // However many attempts the outage has had.
    assert_eq!(
        refused(log.lines_of_stores(), "ERROR"),
        1,
        "{:?}",
        log.lines_of_stores()
    );
}

#[tokio::test]
async fn a_server_that_leaves_cluster_mode_serves_without_a_restart() {
    let cluster = RedisServer::start_cluster();
    let port = cluster.port();
    let store = RedisStore::new(cluster.url()).unwrap();
    let error = store.probe(Probe::Write, Instant::now() + PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("cluster mode"), "{error}");
    drop(cluster);
    let _standalone = RedisServer::start_at(port);
    connected(&store).await;
    store.probe(Probe::Write, Instant::now() + PATIENCE).await.unwrap();
}

#[tokio::test]
async fn info_tells_the_mode_of_a_server_without_hello_to_users_who_may_ask() {
    // HELLO itself is allowed to every user.
    let old = ["--rename-command", "HELLO", ""];
    let cluster = RedisServer::start_with(&[&["--cluster-enabled", "yes"], &old[..]].concat());
    cluster.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let standalone = RedisServer::start_with(&old);
    for (server, user, may_connect) in [
        (&cluster, &["+get", "+info"][..], false),
        (&cluster, &["+get"], true),
        (&standalone, &["+get", "+info"], true),
        (&standalone, &["+get"], true),
    ] {
        server.cli(&[&["ACL", "SETUSER", "reader", "reset", "on", ">secret", "~*"], user].concat());
        let store = RedisStore::new(format!("redis://reader:secret@127.0.0.1:{}", server.port())).unwrap();
        let answer = store.flag("checkout", Instant::now() + PATIENCE).await;
        assert_eq!(store.is_connected(), may_connect, "{user:?}: {answer:?}");
        if !may_connect {
            let error = answer.unwrap_err();
            assert!(error.to_string().contains("cluster mode"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_lent_pool_says_why_decisions_over_two_slots_fail() {
    let server = RedisServer::start_cluster();
    let manager = RedisConnectionManager::new(server.url()).unwrap();
    let pool = bb8::Pool::builder().build(manager).await.unwrap();
    let resilience: Resilience = over(RedisStore::from_pool(pool)).build().unwrap();
    let log = Log::start();
    let app = limited_twice.with(resilience.clone());
    for _ in 0..5 {
        assert_eq!(refusal(&app).await, (503, "limiter_unavailable".to_owned()));
    }
    let says = |line: &String| line.contains("CrossSlot") && line.contains("runs in cluster mode");
    assert!(log.lines().iter().any(says), "{:?}", log.lines());
    let shared = resilience
        .breakers()
        .into_iter()
        .find(|breaker| breaker.name() == "store");
    assert_ne!(shared.expect("all operations share one").state(), State::Closed);
}
