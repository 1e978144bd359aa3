//! Clients that the store has refused are refused without asking it again, for the wait that it gave.

use poem::{EndpointExt, handler};
use resilience::{
    Identity, resilient,
    testing::{Answer, ScriptedStore},
};
use tokio::time::advance;

use super::{app, ask, full, ms, over, request, room};

#[resilient(
    auth = "fail_closed",
    flag("blocked", default = false),
    rate_limit(5, 60, key = header("x-tenant"), on_outage = "fail_closed"),
    rate_limit(50, "1h", key = global, name = "blocked-hourly")
)]
#[handler]
async fn two_quotas() {}

#[resilient(auth = "fail_closed", rate_limit(5, 60, key = user))]
#[handler]
async fn by_user(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(5, 60, on_outage = "fail_local"))]
#[handler]
async fn local() {}

#[resilient(rate_limit(5, 60, mode = "observe"))]
#[handler]
async fn observed() {}

#[resilient(rate_limit(5, 60, key = global, name = "blocked-shared"))]
#[handler]
async fn shares() {}

#[resilient(rate_limit(5, 60, key = global, name = "blocked-shared"))]
#[handler]
async fn shares_too() {}

#[resilient(rate_limit(5, 60, key = global, name = "blocked-shared", cost = 3))]
#[handler]
async fn costs_more() {}

const WAIT: u64 = 10_000;

#[tokio::test(start_paused = true)]
async fn a_flood_asks_the_store_once_and_gets_its_answer() {
    let store = ScriptedStore::new().on_take_each(Answer::ok(vec![full(ms(WAIT)), room(49, ms(1_000))]));
    let app = app(two_quotas, over(&store));
    let tenant = |name| request(&[("x-tenant", name), ("x-api-key", "k")]);
    let refused = ask(&app, tenant("a")).await;
    assert_eq!(refused.summary(), (429, "rate_limited".into()));
    let calls = store.calls();
    assert_eq!(calls.take, 1);

    for _ in 0..1_000 {
        let again = ask(&app, tenant("a")).await;
        assert_eq!((again.summary(), again.lines()), (refused.summary(), refused.lines()));
        assert_eq!(again.body, refused.body);
    }
    assert_eq!(store.calls(), calls, "neither quotas, nor flags, nor keys");

    advance(ms(3_500)).await;
    let later = ask(&app, tenant("a")).await;
    assert_eq!(
        later.lines(),
        [
            "ratelimit-policy: \"default\";q=5;w=60, \"blocked-hourly\";q=50;w=3600",
            "ratelimit: \"default\";r=0;t=7",
            "retry-after: 7",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 0",
        ]
    );
    store
        .on_take(Answer::ok(room(1, ms(1_000))))
        .on_identity(Answer::ok(Some("ada")));
    assert_eq!(ask(&app, tenant("b")).await.status, 200, "somebody else");
}

#[tokio::test(start_paused = true)]
async fn the_first_request_after_the_wait_asks_again() {
    let store = ScriptedStore::new().on_take(Answer::ok(full(ms(WAIT))).after(ms(7)));
    let app = app(local, over(&store));
    assert_eq!(ask(&app, request(&[])).await.status, 429);
    store.on_take(Answer::ok(room(4, ms(1_000))));
    // Since it was asked, and not since it has answered.
    advance(ms(WAIT - 8)).await;
    assert_eq!(ask(&app, request(&[])).await.status, 429);
    assert_eq!(store.calls().take, 1);
    advance(ms(1)).await;
    assert_eq!(ask(&app, request(&[])).await.status, 200);
    assert_eq!(store.calls().take, 2);
}

#[tokio::test(start_paused = true)]
async fn a_users_refusal_is_remembered_once_the_user_is_known() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")))
        .on_take(Answer::ok(full(ms(WAIT))));
    let app = app(by_user, over(&store));
    let with_key = || request(&[("x-api-key", "k")]);
    for _ in 0..3 {
        assert_eq!(ask(&app, with_key()).await.status, 429);
    }
    assert_eq!((store.calls().identity, store.calls().take), (3, 1));
    store
        .on_identity(Answer::ok(Some("bob")))
        .on_take(Answer::ok(room(1, ms(1_000))));
    assert_eq!(ask(&app, with_key()).await.summary(), (200, "bob".into()));
}

#[tokio::test(start_paused = true)]
async fn a_shared_quota_refuses_everywhere_but_for_other_costs() {
    let store = ScriptedStore::new().on_take(Answer::ok(full(ms(WAIT))));
    let resilience = over(&store).build().expect("valid settings");
    assert_eq!(ask(&shares.with(resilience.clone()), request(&[])).await.status, 429);
    assert_eq!(
        ask(&shares_too.with(resilience.clone()), request(&[])).await.status,
        429
    );
    assert_eq!(store.calls().take, 1);
    assert_eq!(ask(&costs_more.with(resilience), request(&[])).await.status, 429);
    assert_eq!(store.calls().take, 2);
}

#[tokio::test(start_paused = true)]
async fn an_outage_neither_teaches_nor_forgets() {
    let store = ScriptedStore::new().on_take(Answer::unavailable());
    let app = app(local, over(&store));
    for status in [200, 200, 200, 200, 200, 429] {
        let answered = ask(&app, request(&[])).await;
        assert_eq!(answered.status, status);
        assert_eq!(answered.header("x-ratelimit-fallback").as_deref(), Some("local"));
    }
    let settings = over(&store);
    let fresh = super::app(local, settings);
    store.on_take(Answer::ok(full(ms(WAIT))));
    assert_eq!(ask(&fresh, request(&[])).await.status, 429);
    store.down();
    let calls = store.calls().take;
    let answered = ask(&fresh, request(&[])).await;
    assert_eq!(
        (answered.status.as_u16(), answered.header("x-ratelimit-fallback")),
        (429, None)
    );
    assert_eq!(
        store.calls().take,
        calls,
        "a client that is known to be over its quota is no better off in an outage"
    );
}

#[tokio::test(start_paused = true)]
async fn what_only_observes_is_not_remembered_nor_is_anybody_if_the_builder_says_so() {
    let store = ScriptedStore::new().on_take(Answer::ok(full(ms(WAIT))));
    let observing = app(observed, over(&store));
    let forgetting = app(local, over(&store).remember_blocked(0));
    for _ in 0..3 {
        assert_eq!(ask(&observing, request(&[])).await.status, 200);
        assert_eq!(ask(&forgetting, request(&[])).await.status, 429);
    }
    assert_eq!(store.calls().take, 6);
}
