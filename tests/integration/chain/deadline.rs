//! The handler's deadline, and budgets around the whole.

use poem::{EndpointExt, handler};
use resilience::{
    breaker::BreakerConfig,
    deadline, resilient,
    testing::{Answer, ScriptedStore},
};
use tokio::time::{Instant, sleep};

use super::{app, ask, is_closed, ms, over, request, room, timed};

#[resilient(deadline = "200ms", rate_limit(30, 60))]
#[handler]
async fn sleepy(request: &poem::Request) -> String {
    let nap = request
        .header("x-nap")
        .expect("it is sent")
        .parse()
        .expect("milliseconds");
    sleep(ms(nap)).await;
    format!("{:?} left", deadline::remaining().expect("it is inside a scope"))
}

#[resilient(deadline = "200ms")]
#[handler]
async fn cut_short() -> String {
    match deadline::scope(ms(50), std::future::pending::<()>()).await {
        Ok(()) => unreachable!("it never ends"),
        Err(exceeded) => exceeded.to_string(),
    }
}

#[resilient(flag("deadline", default = false))]
#[handler]
async fn flagged() {}

fn nap(milliseconds: &'static str) -> poem::Request {
    request(&[("x-nap", milliseconds)])
}

#[tokio::test(start_paused = true)]
async fn a_handler_in_time_answers_and_sees_what_is_left() {
    let answered = ask(&app(sleepy, over(&ScriptedStore::new())), nap("150")).await;
    assert_eq!(answered.summary(), (200, "50ms left".into()));
}

#[tokio::test(start_paused = true)]
async fn a_handler_out_of_time_is_dropped_and_the_guards_headers_stand() {
    let store = ScriptedStore::new().on_take(Answer::ok(room(7, ms(1_000))).after(ms(70)));
    let (answered, took) = timed(&app(sleepy, over(&store)), nap("201")).await;
    assert_eq!(answered.summary(), (504, "timeout".into()));
    assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some("7"));
    assert_eq!(took, ms(70 + 200), "the guards' time is not the handler's");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_scope_inside_is_the_handlers_own_business() {
    let (answered, took) = timed(&app(cut_short, over(&ScriptedStore::new())), request(&[])).await;
    assert_eq!(
        (answered.summary(), took),
        ((200, "the deadline was exceeded".into()), ms(50))
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_around_the_whole_shortens_the_guards_deadlines_and_says_nothing_of_the_store() {
    let store = ScriptedStore::new().on_flag(Answer::never());
    let settings = over(&store).breaker(BreakerConfig::default().with_failures_in_a_row(1));
    let resilience = settings.build().expect("valid settings");
    let app = flagged.with(resilience.clone());
    for _ in 0..3 {
        let asked = Instant::now();
        let answered = deadline::scope(ms(30), ask(&app, request(&[])))
            .await
            .expect("the fallback takes no time");
        assert_eq!(answered.header("x-flag-fallback").as_deref(), Some("deadline"));
        assert_eq!(asked.elapsed(), ms(30));
    }
    assert_eq!(store.calls().flag, 3);
    assert!(is_closed(&resilience));

    // The guard's own deadline still counts where it is the shorter one.
    let answered = deadline::scope(ms(101), ask(&app, request(&[])))
        .await
        .expect("within the budget");
    assert_eq!(answered.header("x-flag-fallback").as_deref(), Some("deadline"));
    assert!(!is_closed(&resilience));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_spent_asks_nobody() {
    let store = ScriptedStore::new();
    let app = app(flagged, over(&store));
    let answered = deadline::scope(ms(0), ask(&app, request(&[])))
        .await
        .expect("nothing to wait for");
    assert_eq!(answered.header("x-flag-fallback").as_deref(), Some("deadline"));
    assert_eq!(store.calls().flag, 0);
}
