//! A Redis that is full (`maxmemory` with `noeviction`): it refuses writes and still serves reads.

use poem::{Endpoint, EndpointExt, Request, handler, http::StatusCode};
use resilience::{
    BreakerChoice, Identity, Resilience,
    breaker::{BreakerConfig, State},
    resilient,
    store::{RedisStore, StoreAdmin},
};
use resilience_tests::{RedisServer, eventually};

use super::{connected, over};

/// Longer than any of these tests: a breaker that has opened stays open.
const OPEN_FOR: std::time::Duration = std::time::Duration::from_secs(600);

#[resilient(auth = "fail_closed", flag("full", default = true), rate_limit(1000, 60))]
#[handler]
async fn read(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(1000, 60, on_outage = "fail_closed"))]
#[handler]
async fn counted() {}

#[resilient(lockout(5, "15m", key = ip))]
#[handler]
async fn login() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

/// A full Redis that knows one key and one flag, and a runtime over it.
async fn full(breakers: BreakerChoice) -> (RedisServer, Resilience) {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = RedisStore::new(server.url()).unwrap();
    connected(&store).await;
    store.add_api_key("letmein", "user-42").await.unwrap();
    store.set_flag("full", false).await.unwrap();
    let breaker = BreakerConfig::default()
        .with_failures_in_a_row(5)
        .with_open_for(OPEN_FOR);
    let built = over(store).breaker(breaker).breakers(breakers).build();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    (server, built.unwrap())
}

/// Status, and which guards fell back.
async fn ask(app: &impl Endpoint) -> (u16, Vec<String>) {
    let request = Request::builder().header("x-api-key", "letmein").finish();
    let response = app.get_response(request).await;
    let names = ["x-flag-fallback", "x-ratelimit-fallback", "x-lockout-fallback"];
    let fell_back = names.iter().filter_map(|name| {
        let value = response.headers().get(*name)?.to_str().ok()?;
        Some(format!("{name}: {value}"))
    });
    (response.status().as_u16(), fell_back.collect())
}

fn states(resilience: &Resilience, names: &[&str]) -> Vec<State> {
    let breakers = resilience.breakers();
    let named = |name: &&str| {
        breakers
            .iter()
            .find(|breaker| breaker.name() == *name)
            .map(|breaker| breaker.state())
    };
    names.iter().filter_map(named).collect()
}

const OPEN: &str = "x-ratelimit-fallback: open";
const CLOSED: &str = "x-ratelimit-fallback: closed";
const LOCKOUT: &str = "x-lockout-fallback: closed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breakers_per_operation_open_for_writes_only() {
    let (server, resilience) = full(BreakerChoice::PerOperation).await;
    let reading = read.with(resilience.clone());
    let names = ["auth", "flag", "rate_limit", "lockout"];
    for _ in 0..6 {
        assert_eq!(ask(&reading).await, (200, vec![OPEN.to_owned()]));
    }
    let expected = [State::Closed, State::Closed, State::Open, State::Closed];
    assert_eq!(states(&resilience, &names), expected);
    assert_eq!(
        ask(&counted.with(resilience.clone())).await,
        (503, vec![CLOSED.to_owned()])
    );

    let logging_in = login.with(resilience.clone());
    for _ in 0..6 {
        assert_eq!(ask(&logging_in).await, (503, vec![LOCKOUT.to_owned()]));
    }
    let expected = [State::Closed, State::Closed, State::Open, State::Open];
    eventually("the lockout's breaker opens", async || {
        states(&resilience, &names) == expected
    })
    .await;
    assert_eq!(ask(&reading).await, (200, vec![OPEN.to_owned()]));
    let health = resilience.health().await;
    assert!(!health.store_reachable && health.is_degraded());
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_breaker_stays_closed_while_reads_succeed_in_between() {
    let (server, resilience) = full(BreakerChoice::Shared).await;
    let (reading, logging_in) = (read.with(resilience.clone()), login.with(resilience.clone()));
    for _ in 0..12 {
        assert_eq!(ask(&reading).await, (200, vec![OPEN.to_owned()]));
        assert_eq!(ask(&logging_in).await, (503, vec![LOCKOUT.to_owned()]));
    }
    assert_eq!(states(&resilience, &["store"]), [State::Closed]);
    // Readiness asks for a write.
    let health = resilience.health().await;
    assert!(!health.store_reachable && health.is_degraded());
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_writes_in_a_row_open_a_shared_breaker_and_stop_the_reads() {
    let (server, resilience) = full(BreakerChoice::Shared).await;
    let counting = counted.with(resilience.clone());
    for _ in 0..5 {
        assert_eq!(ask(&counting).await, (503, vec![CLOSED.to_owned()]));
    }
    assert_eq!(states(&resilience, &["store"]), [State::Open]);
    let refused = ask(&read.with(resilience.clone())).await;
    let expected = ["x-flag-fallback: full", OPEN].map(str::to_owned);
    assert_eq!(refused, (503, expected.to_vec()));
    drop(server);
}
