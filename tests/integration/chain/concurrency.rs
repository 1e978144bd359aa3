//! The guards of a phase are asked together and read in their order.

use poem::handler;
use resilience::{
    Identity, resilient,
    testing::{Answer, ScriptedStore},
};

use super::{app, full, ms, over, request, room, timed};

#[resilient(auth = "fail_closed", flag("together", default = false), rate_limit(30, 60))]
#[handler]
async fn together(Identity(user): Identity) -> String {
    user
}

#[resilient(auth = "fail_closed", flag("two-phases", default = false), rate_limit(30, 60), rate_limit(9, 60, key = user))]
#[handler]
async fn two_phases(Identity(user): Identity) -> String {
    user
}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];

#[tokio::test(start_paused = true)]
async fn a_phase_takes_as_long_as_its_slowest_answer() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")).after(ms(50)))
        .on_flag(Answer::ok(None).after(ms(50)))
        .on_take(Answer::ok(room(1, ms(1))).after(ms(50)));
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((200, "ada".into()), ms(50)));
    let (answered, took) = timed(&app(two_phases, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((200, "ada".into()), ms(100)));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_guard_that_refuses_does_not_wait_for_later_ones() {
    let store = ScriptedStore::new()
        .on_identity(Answer::never())
        .on_flag(Answer::never())
        .on_take(Answer::ok(full(ms(1))).after(ms(10)));
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((429, "rate_limited".into()), ms(10)));

    store.on_take(Answer::ok(room(1, ms(1))));
    store.on_flag(Answer::ok(Some(true)));
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((503, "feature_disabled".into()), ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_later_guard_that_refuses_waits_for_earlier_ones() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(None))
        .on_flag(Answer::ok(None).after(ms(20)))
        .on_take(Answer::ok(room(1, ms(1))).after(ms(60)));
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((401, "invalid_api_key".into()), ms(60)));
    assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_is_refused_when_its_turn_comes() {
    let store = ScriptedStore::new().on_take(Answer::ok(full(ms(1))).after(ms(60)));
    let (answered, took) = timed(&app(together, over(&store)), request(&[])).await;
    assert_eq!((answered.summary(), took), ((429, "rate_limited".into()), ms(60)));
    assert_eq!(store.calls().identity, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hung_store_costs_no_more_than_the_longest_deadline() {
    let store = ScriptedStore::new()
        .on_identity(Answer::never())
        .on_flag(Answer::never())
        .on_take(Answer::never());
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((503, "auth_unavailable".into()), ms(150)));
    assert_eq!(
        answered.lines(),
        [
            "retry-after: 30",
            "x-flag-fallback: together",
            "x-ratelimit-fallback: open"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_guard_has_its_own_deadline() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")).after(ms(149)))
        .on_flag(Answer::ok(Some(true)).after(ms(101)))
        .on_take(Answer::ok(full(ms(1))).after(ms(81)));
    let (answered, took) = timed(&app(together, over(&store)), request(KEY)).await;
    assert_eq!((answered.summary(), took), ((200, "ada".into()), ms(149)));
    assert_eq!(
        answered.lines(),
        ["x-flag-fallback: together", "x-ratelimit-fallback: open"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_comes_late_is_not_used() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")))
        .on_take(Answer::ok(full(ms(1))).after(ms(90)));
    let app = app(together, over(&store));
    // The clock leaps: answer and deadline are both past when anybody looks.
    let leap = async {
        tokio::time::sleep(ms(1)).await;
        tokio::time::advance(ms(200)).await;
    };
    let ((answered, _), ()) = tokio::join!(timed(&app, request(KEY)), leap);
    assert_eq!(answered.summary(), (200, "ada".into()));
    assert_eq!(answered.header("x-ratelimit-fallback").as_deref(), Some("open"));
}
