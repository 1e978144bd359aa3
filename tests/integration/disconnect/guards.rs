//! What guards make of a client that has gone.

use resilience::{
    Builder,
    breaker::{BreakerConfig, State},
    store::Settle,
    testing::{Answer, ScriptedStore},
};
use resilience_tests::eventually;

use super::*;

#[resilient(flag("disconnect", default = false, deadline = "10s"))]
#[handler]
async fn behind_a_slow_flag(Data(stage): Data<&Stage>) -> &'static str {
    stage.play().await
}

/// A runtime whose breakers open at the first failure.
fn touchy(store: &ScriptedStore) -> Builder {
    let settings = BreakerConfig::default().with_failures_in_a_row(1);
    Resilience::builder().store(store.clone()).breaker(settings)
}

fn is_closed(resilience: &Resilience) -> bool {
    resilience
        .breakers()
        .iter()
        .all(|breaker| breaker.state() == State::Closed)
}

#[tokio::test]
async fn guards_are_asked_no_further_and_their_breaker_counts_nothing() {
    let store = ScriptedStore::new().on_flag(Answer::never());
    let resilience = touchy(&store).build().unwrap();
    let mut scene = Scene::watched(behind_a_slow_flag, resilience.clone()).await;
    let mut client = scene.connect().await;
    client.write_all(REQUEST).await.unwrap();
    eventually("the flag is asked", async || store.calls().flag == 1).await;
    drop(client);
    // The handler has not begun.
    scene.expect(&[closed()]).await;
    assert!(is_closed(&resilience));
}

#[tokio::test]
async fn a_dropped_handler_is_no_failure() {
    let store = ScriptedStore::new();
    let resilience = touchy(&store).build().unwrap();
    let mut scene = Scene::watched(with_deadline, resilience.clone()).await;
    drop(scene.asking().await);
    scene.expect(&[Event::Dropped, closed()]).await;
    assert!(is_closed(&resilience));
}

#[resilient(lockout(3, "15m", key = ip))]
#[handler]
async fn login(Data(stage): Data<&Stage>) -> &'static str {
    stage.play().await
}

#[tokio::test]
async fn an_attempt_has_failed() {
    let store = ScriptedStore::new();
    let mut scene = Scene::watched(login, touchy(&store).build().unwrap()).await;
    drop(scene.asking().await);
    scene.expect(&[Event::Dropped, closed()]).await;
    // Hanging up is no way to try again for free.
    eventually("it is settled", async || store.calls().settle == 1).await;
    assert_eq!(store.calls().begin, 1);
    assert!(
        matches!(store.settled()[..], [(_, Settle::Fail)]),
        "{:?}",
        store.settled()
    );
}
