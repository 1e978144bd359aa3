//! Requests that end before their time: dropped by the client, or by a panic.

use std::{future::Future, panic::AssertUnwindSafe, pin::pin, task::Poll};

use futures_util::FutureExt;
use poem::{Endpoint, EndpointExt, handler};
use resilience::{
    Identity, Resilience,
    breaker::{BreakerConfig, State},
    resilient,
    testing::{Answer, ScriptedStore},
};

use super::{ask, is_closed, ms, over, request};

#[resilient(
    auth = "fail_closed",
    flag("cancellation", default = false),
    rate_limit(30, 60),
    rate_limit(30, 60, key = user)
)]
#[handler]
async fn guarded(Identity(user): Identity) -> String {
    assert_ne!(user, "mallory", "a bug of the handler's");
    user
}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];

/// A runtime whose breaker opens at the first failure.
fn touchy(store: &ScriptedStore) -> Resilience {
    let settings = BreakerConfig::default().with_failures_in_a_row(1);
    over(store).breaker(settings).build().expect("valid settings")
}

/// Each answer comes at its own time, so that a request waits at many points.
fn slow() -> ScriptedStore {
    ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")).after(ms(30)))
        .on_flag(Answer::ok(None).after(ms(20)))
        .on_take(Answer::ok(super::room(1, ms(1))).after(ms(10)))
}

/// Polls the request `polls` times, as its waits end, and drops it. Whether it was done by then.
async fn drop_after(app: &impl Endpoint, polls: usize) -> bool {
    let mut call = pin!(app.get_response(request(KEY)));
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        call.as_mut().poll(cx).map(|_| true)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_at_any_await_counts_for_nothing() {
    let store = slow();
    let resilience = touchy(&store);
    let app = guarded.with(resilience.clone());
    let mut polls = 1;
    while !drop_after(&app, polls).await {
        assert!(is_closed(&resilience), "after {polls} polls");
        assert_eq!(
            ask(&app, request(KEY)).await.summary(),
            (200, "ada".into()),
            "after {polls} polls"
        );
        polls += 1;
    }
    assert!(polls > 4, "it waits at several points, not {polls}");
    assert!(is_closed(&resilience));
}

#[tokio::test(start_paused = true)]
async fn clients_that_hang_up_on_a_hung_store_do_not_open_the_breaker() {
    let store = ScriptedStore::new()
        .on_identity(Answer::never())
        .on_flag(Answer::never())
        .on_take(Answer::never());
    let resilience = touchy(&store);
    let app = guarded.with(resilience.clone());
    for _ in 0..20 {
        let hung_up = tokio::time::timeout(ms(79), app.get_response(request(KEY))).await;
        assert!(hung_up.is_err());
    }
    assert!(is_closed(&resilience));
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_a_probe_is_due_leaves_the_probe_alone() {
    let store = ScriptedStore::new().down().on_probe(Answer::ok(()).after(ms(100)));
    let resilience = touchy(&store);
    let app = guarded.with(resilience.clone());
    ask(&app, request(KEY)).await;
    tokio::time::sleep(ms(5_050)).await;
    let half_open = resilience
        .breakers()
        .iter()
        .any(|breaker| breaker.state() == State::HalfOpen);
    assert!(half_open, "the probe is under way");
    drop(app.get_response(request(KEY)).now_or_never());
    tokio::time::sleep(ms(100)).await;
    assert!(is_closed(&resilience));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_handler_leaves_the_counts_right() {
    let store = ScriptedStore::new().on_identity(Answer::ok(Some("mallory")));
    let resilience = touchy(&store);
    let app = guarded.with(resilience.clone());
    for _ in 0..3 {
        assert!(
            AssertUnwindSafe(app.get_response(request(KEY)))
                .catch_unwind()
                .await
                .is_err()
        );
    }
    assert!(is_closed(&resilience));
    store.on_identity(Answer::ok(Some("ada")));
    assert_eq!(ask(&app, request(KEY)).await.summary(), (200, "ada".into()));
}
