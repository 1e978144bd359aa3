//! What lockouts do while nobody can count.

use resilience::{
    Resilience,
    breaker::{BreakerConfig, State},
    store::{RedisStore, StoreErrorKind},
};
use resilience_tests::{RedisServer, eventually};

use super::*;
use crate::chain::{ms, timed};

#[resilient(lockout(2, "15m", key = ip, on_outage = "fail_open"))]
#[handler]
async fn open() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

#[resilient(lockout(2, "15m", key = account("json:/username"), on_outage = "fail_local"))]
#[handler]
async fn local(body: String) -> poem::Result<Response> {
    answer(&body)
}

#[tokio::test(start_paused = true)]
async fn it_fails_closed_at_once_and_comes_back_by_itself() {
    let store = ScriptedStore::new()
        .on_begin(Answer::never())
        .on_settle(Answer::never());
    let settings = BreakerConfig::default()
        .with_failures_in_a_row(2)
        .with_open_for(Duration::from_secs(1));
    let app = app(login, over(&store).breaker(settings));
    for waited in [100, 100, 0, 0, 0] {
        let (refused, took) = timed(&app, attempt("ada", "200")).await;
        assert_eq!(refused.summary(), (503, "lockout_unavailable".into()));
        assert_eq!(refused.lines(), ["retry-after: 30", "x-lockout-fallback: closed"]);
        assert!((ms(waited)..ms(waited + 5)).contains(&took), "{took:?}");
    }
    // Asked twice, once the breaker is open never.
    assert_eq!(store.calls().begin, 2);
    store.on_begin(Answer::ok(())).on_settle(Answer::ok(()));
    eventually("logins are back", async || status(&app, "ada", "200").await == 200).await;
}

#[tokio::test(start_paused = true)]
async fn it_fails_open_where_it_was_told_to() {
    let store = ScriptedStore::new().down();
    let app = app(open, over(&store));
    for _ in 0..5 {
        let answered = ask(&app, post("")).await;
        assert_eq!(answered.status, 401);
        assert_eq!(answered.lines(), ["x-lockout-fallback: open"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_cannot_be_counted_for_want_of_room_is_refused_whatever_the_policy_says() {
    let store = ScriptedStore::new().on_begin(Answer::error(StoreErrorKind::Saturated));
    for refused in [
        ask(&app(login, over(&store)), attempt("ada", "200")).await,
        ask(&app(open, over(&store)), post("")).await,
        ask(&app(local, over(&store)), attempt("ada", "200")).await,
    ] {
        assert_eq!(refused.summary(), (503, "overloaded".into()));
        assert_eq!(refused.lines(), ["retry-after: 1"]);
    }
    // The store has counted nothing that would have to be given back.
    assert_eq!(store.calls().settle, 0);
}

#[tokio::test(start_paused = true)]
async fn it_counts_in_this_process_where_it_was_told_to_and_settles_there() {
    let store = ScriptedStore::new().down();
    let app = app(local, over(&store));
    for (password, expected) in [
        ("401", 401),
        ("200", 200),
        ("401", 401),
        ("500", 500),
        ("401", 401),
        ("200", 429),
    ] {
        let answered = ask(&app, attempt("ada", password)).await;
        assert_eq!(answered.status, expected, "{password}");
        assert_eq!(answered.header("x-lockout-fallback"), Some("local".into()));
    }
    assert_eq!(status(&app, "eve", "401").await, 401);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_changes_no_answer() {
    let store = ScriptedStore::new().on_settle(Answer::error(StoreErrorKind::Unavailable));
    let app = app(login, over(&store));
    let answered = ask(&app, attempt("ada", "200")).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, vec![]));
    store.on_settle(Answer::never());
    let (answered, took) = timed(&app, attempt("ada", "200")).await;
    assert_eq!(answered.status, 200);
    assert!(took < ms(110), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_settled_is_given_back_later() {
    let store = ScriptedStore::new().on_settle(Answer::error(StoreErrorKind::Unavailable));
    let app = app(login, over(&store));
    assert_eq!(status(&app, "ada", "200").await, 200);
    assert_eq!(
        store.settled(),
        [(address(), Settle::GiveBack), (account("ada"), Settle::Clear)]
    );
    // Others may have tried meanwhile: their attempts stay.
    store.on_settle(Answer::ok(()));
    eventually("it is tried again", async || store.calls().settle == 2).await;
    assert_eq!(
        store.settled()[2..],
        [(address(), Settle::GiveBack), (account("ada"), Settle::GiveBack)]
    );
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(store.calls().settle, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_could_not_be_settled_is_told_later() {
    let store = ScriptedStore::new().on_settle(Answer::error(StoreErrorKind::Unavailable));
    let app = app(login, over(&store));
    assert_eq!(status(&app, "ada", "401").await, 401);
    store.on_settle(Answer::ok(()));
    eventually("it is tried again", async || store.calls().settle == 2).await;
    let failed = [(address(), Settle::Fail), (account("ada"), Settle::Fail)];
    assert_eq!(store.settled(), [failed.clone(), failed].concat());
}

#[resilient(lockout(2, "15m", key = account("json:/username"), on_outage = "fail_open"))]
#[handler]
async fn open_login() {}

/// A client that sends its body slowly enough has spent the time that its request has. That is no outage.
#[tokio::test(start_paused = true)]
async fn whoever_is_out_of_time_is_not_let_in_by_it() {
    let store = ScriptedStore::new();
    let app = app(open_login, over(&store));
    let slow = futures_util::stream::once(async {
        tokio::time::sleep(ms(200)).await;
        Ok::<_, std::io::Error>(&b"{\"username\":\"ada\"}"[..])
    });
    let request = Request::builder().body(poem::Body::from_bytes_stream(Box::pin(slow)));
    let answered = resilience::deadline::scope(ms(100), ask(&app, request)).await;
    // Whether its own deadline or the body's comes first: it is not the handler that answers.
    assert!(answered.map_or(true, |answered| !answered.status.is_success()));
    assert_eq!(store.calls().begin, 0);
}

#[tokio::test(start_paused = true)]
async fn an_unlocked_account_may_try_again_and_an_error_is_said() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let app = poem::EndpointExt::with(login, resilience.clone());
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    assert_eq!(status(&app, "ada", "200").await, 429);
    assert_eq!(resilience.unlock("ADA").await.unwrap(), 1);
    assert_eq!(resilience.unlock("ada").await.unwrap(), 0);
    assert_eq!(status(&app, "ada", "200").await, 200);
    assert!(resilience.unlock(" ").await.is_err());
    let down = over(&ScriptedStore::new().down()).build().unwrap();
    assert!(down.unlock("ada").await.is_err());
}

/// The same login in health and in an outage, over a Redis that is killed and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_refuses_logins_and_lets_them_in_again() {
    let mut redis = RedisServer::start();
    let store = RedisStore::builder(redis.url()).build().unwrap();
    eventually("connected", async || store.connections() == 2).await;
    let resilience = Resilience::builder()
        .store(store)
        .breaker(BreakerConfig::default().with_open_for(ms(200)))
        .lockout_deadline(Duration::from_secs(2))
        .build()
        .unwrap();
    let app = poem::EndpointExt::with(login, resilience.clone());
    assert_eq!(status(&app, "ada", "200").await, 200);
    redis.kill();
    for _ in 0..10 {
        assert_eq!(ask(&app, attempt("ada", "200")).await.code(), "lockout_unavailable");
    }
    assert!(
        resilience
            .breakers()
            .iter()
            .any(|breaker| breaker.state() != State::Closed)
    );
    redis.restart();
    eventually("logins are back", async || status(&app, "ada", "200").await == 200).await;
    // And locks hold again.
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    assert_eq!(status(&app, "ada", "200").await, 429);
}
