//! Flags.

use poem::handler;
use resilience::{
    resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};
use tokio::{join, time::advance};

use super::{Answered, app, ask, ms, over, request, timed};

#[resilient(flag("kill", default = false))]
#[handler]
async fn killable() {}

#[resilient(flag("kill-by-default", default = true))]
#[handler]
async fn killed_by_default() {}

#[resilient(flag("gate", default = true, blocks_when = "off"))]
#[handler]
async fn gated() {}

#[resilient(flag("stale", default = false, stale = "30s", deadline = "60ms"))]
#[handler]
async fn remembering() {}

#[resilient(
    flag("one", default = false),
    flag("two", default = false),
    flag("three", default = true)
)]
#[handler]
async fn three_flags() {}

const PASSED: (u16, Option<String>) = (200, None);

/// Status, and which flags fell back.
fn outcome(answered: &Answered) -> (u16, Option<String>) {
    (answered.status.as_u16(), answered.header("x-flag-fallback"))
}

fn fell_back(status: u16, flags: &str) -> (u16, Option<String>) {
    (status, Some(flags.into()))
}

#[tokio::test(start_paused = true)]
async fn a_kill_switch_blocks_while_it_is_on() {
    let store = ScriptedStore::new();
    let app = app(killable, over(&store));
    for (value, status) in [(Some(true), 503), (Some(false), 200), (None, 200)] {
        store.on_flag(Answer::ok(value));
        assert_eq!(outcome(&ask(&app, request(&[])).await), (status, None), "{value:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_blocks_while_it_is_off_and_a_missing_flag_is_off() {
    let store = ScriptedStore::new();
    let app = app(gated, over(&store));
    for (value, status) in [(Some(true), 200), (Some(false), 404), (None, 404)] {
        store.on_flag(Answer::ok(value));
        assert_eq!(outcome(&ask(&app, request(&[])).await), (status, None), "{value:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_serves_in_an_outage_and_says_so() {
    for answer in [
        Answer::unavailable(),
        Answer::error(StoreErrorKind::Answered),
        Answer::error(StoreErrorKind::TimedOut),
        Answer::never(),
    ] {
        let store = ScriptedStore::new().on_flag(answer);
        let passed = ask(&app(killable, over(&store)), request(&[])).await;
        assert_eq!(outcome(&passed), fell_back(200, "kill"));
        let opened = ask(&app(gated, over(&store)), request(&[])).await;
        assert_eq!(outcome(&opened), fell_back(200, "gate"));
        let blocked = ask(&app(killed_by_default, over(&store)), request(&[])).await;
        assert_eq!(outcome(&blocked), fell_back(503, "kill-by-default"));
        assert_eq!(blocked.code(), "feature_disabled");
    }
}

/// A flood must not turn on what an operator has turned off.
#[tokio::test(start_paused = true)]
async fn a_flag_that_was_not_asked_for_want_of_room_refuses_the_request() {
    let store = ScriptedStore::new().on_flag(Answer::error(StoreErrorKind::Saturated));
    let refused = ask(&app(killable, over(&store)), request(&[])).await;
    assert_eq!(refused.summary(), (503, "overloaded".into()));
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    assert_eq!(refused.header("x-flag-fallback"), None);
}

#[tokio::test(start_paused = true)]
async fn the_last_known_value_serves_for_its_time_and_then_the_default() {
    let store = ScriptedStore::new();
    let app = app(remembering, over(&store));
    store.on_flag(Answer::ok(Some(true)));
    assert_eq!(outcome(&ask(&app, request(&[])).await), (503, None));

    store.on_flag(Answer::unavailable());
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(503, "stale"));
    advance(ms(30_000)).await;
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(503, "stale"));
    advance(ms(1)).await;
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(200, "stale"));
}

#[tokio::test(start_paused = true)]
async fn nothing_known_is_the_default() {
    let store = ScriptedStore::new().on_flag(Answer::unavailable());
    let answered = ask(&app(remembering, over(&store)), request(&[])).await;
    assert_eq!(outcome(&answered), fell_back(200, "stale"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_does_not_replace_what_was_asked_for_later() {
    let store = ScriptedStore::new();
    let app = app(remembering, over(&store));
    store.on_flag(Answer::ok(Some(true)).after(ms(50)));
    let slow = ask(&app, request(&[]));
    let switched_off_meanwhile = async {
        tokio::time::sleep(ms(10)).await;
        store.on_flag(Answer::ok(Some(false)));
        ask(&app, request(&[])).await
    };
    let (slow, quick) = join!(slow, switched_off_meanwhile);
    assert_eq!((outcome(&slow), outcome(&quick)), ((503, None), PASSED));

    store.on_flag(Answer::unavailable());
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(200, "stale"));
}

#[tokio::test(start_paused = true)]
async fn a_flags_deadline_is_the_policys_before_the_builders() {
    let store = ScriptedStore::new().on_flag(Answer::never());
    assert_eq!(timed(&app(remembering, over(&store)), request(&[])).await.1, ms(60));
    assert_eq!(timed(&app(killable, over(&store)), request(&[])).await.1, ms(100));
    let settings = over(&store).flag_deadline(ms(7));
    assert_eq!(timed(&app(killable, settings), request(&[])).await.1, ms(7));
}

#[tokio::test(start_paused = true)]
async fn each_flag_falls_back_by_itself_and_those_after_the_one_that_blocks_are_silent() {
    let store = ScriptedStore::new()
        .on_flag_named("one", Answer::unavailable())
        .on_flag_named("two", Answer::never())
        .on_flag_named("three", Answer::ok(Some(false)));
    let app = app(three_flags, over(&store));
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(200, "one, two"));

    store.on_flag_named("two", Answer::ok(Some(true)));
    store.on_flag_named("three", Answer::unavailable());
    assert_eq!(outcome(&ask(&app, request(&[])).await), fell_back(503, "one"));
}
