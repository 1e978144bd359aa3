//! Budgets that are not the handler's own: a caller's, and a shorter one inside.

use std::net::SocketAddr;

use poem::{EndpointExt, Request, handler};
use resilience::{
    Error, Resilience,
    concurrency::ConcurrencyLimit,
    deadline, resilient,
    testing::{Answer, ScriptedStore},
};
use resilience_tests::request_from;
use tokio::time::sleep;

use super::{app, ask, ms, over, room, timed};

/// A request of a caller that is trusted, and has so many milliseconds left.
fn with_left(left: &str) -> Request {
    let address: SocketAddr = "10.1.2.3:4711".parse().expect("an address");
    request_from(address, &[("x-deadline-ms", left)])
}

#[resilient(rate_limit(30, 60), deadline = "1s")]
#[handler]
async fn naps() -> String {
    sleep(ms(40)).await;
    format!("{:?}", deadline::remaining())
}

#[tokio::test(start_paused = true)]
async fn a_callers_time_runs_while_its_guards_are_asked() {
    let slow = || ScriptedStore::new().on_take(Answer::ok(room(7, ms(1_000))).after(ms(70)));
    let settings = |store: &ScriptedStore| over(store).deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let store = slow();
    let limited = app(naps, settings(&store));
    let (answered, took) = timed(&limited, with_left("150")).await;
    assert_eq!((answered.body.as_str(), took), ("Some(40ms)", ms(110)));
    let (answered, took) = timed(&limited, with_left("100")).await;
    assert_eq!((answered.summary(), took), ((504, "timeout".into()), ms(100)));
    let (answered, took) = timed(&limited, with_left("50")).await;
    assert_eq!((answered.summary(), took), ((504, "timeout".into()), ms(50)));
    let asked = store.calls().take;
    let (answered, took) = timed(&limited, with_left("0")).await;
    assert_eq!((answered.summary(), took), ((504, "timeout".into()), ms(0)));
    assert_eq!(store.calls().take, asked, "nothing is counted that nobody waits for");
}

#[resilient(concurrency(1, queue = 1, queue_timeout = "500ms"))]
#[handler]
async fn one_at_a_time() {
    sleep(ms(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_does_not_wait_for_a_slot_beyond_its_time() {
    let settings = over(&ScriptedStore::new()).deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let app = app(one_at_a_time, settings);
    let first = ask(&app, with_left("1000"));
    let second = timed(&app, with_left("100"));
    let (first, (second, took)) = tokio::join!(first, second);
    assert_eq!(first.status.as_u16(), 200);
    assert_eq!((second.summary().0, took), (504, ms(100)));
}

#[resilient(concurrency(64, adaptive = true))]
#[handler]
async fn adapts() {
    sleep(ms(10)).await;
}

#[resilient(concurrency(64, adaptive = true))]
#[handler]
async fn adapts_and_calls() -> Result<(), Error> {
    Ok(deadline::scope(ms(10), std::future::pending()).await?)
}

fn limit_of(resilience: &Resilience, name: &str) -> ConcurrencyLimit {
    let limits = resilience.concurrency_limits();
    let limit = limits.into_iter().find(|limit| limit.name().ends_with(name));
    limit.expect("the handler's")
}

#[tokio::test(start_paused = true)]
async fn an_impatient_caller_teaches_an_adaptive_limit_nothing() {
    let settings = over(&ScriptedStore::new()).deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let resilience = settings.build().expect("valid settings");
    let limit = limit_of(&resilience, "::adapts");
    let app = adapts.with(resilience);
    let before = limit.limit();
    for nth in 0..50 {
        let left = if nth % 2 == 0 { "0" } else { "1" };
        assert_eq!(ask(&app, with_left(left)).await.status.as_u16(), 504);
    }
    assert_eq!(limit.limit(), before);
}

#[tokio::test(start_paused = true)]
async fn a_dependency_out_of_time_is_no_handler_out_of_time() {
    let resilience = over(&ScriptedStore::new()).build().expect("valid settings");
    let limit = limit_of(&resilience, "::adapts_and_calls");
    let app = adapts_and_calls.with(resilience);
    let before = limit.limit();
    for _ in 0..15 {
        assert_eq!(ask(&app, Request::default()).await.summary(), (504, "timeout".into()));
    }
    assert_eq!(limit.limit(), before);
}

#[resilient(lockout(1, "15m", key = ip), deadline = "1s")]
#[handler]
async fn login() -> Result<(), Error> {
    Ok(deadline::scope(ms(10), std::future::pending()).await?)
}

#[tokio::test(start_paused = true)]
async fn a_login_that_its_dependency_left_hanging_was_no_attempt() {
    let app = app(login, Resilience::builder().memory());
    for _ in 0..3 {
        let answered = ask(&app, with_left("")).await;
        assert_eq!(
            answered.summary(),
            (504, "timeout".into()),
            "its user is not locked out"
        );
    }
}
