//! The handler's deadline, and budgets around the whole.

use std::net::SocketAddr;

use poem::{EndpointExt, Request, handler};
use resilience::{
    breaker::BreakerConfig,
    deadline, resilient,
    testing::{Answer, ScriptedStore},
};
use resilience_tests::request_from;
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

/// A request over a connection from this address.
fn from(address: &str, headers: &[(&'static str, &str)]) -> Request {
    let address: SocketAddr = format!("{address}:4711").parse().expect("an address");
    request_from(address, headers)
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn without_deadline(request: &poem::Request) -> String {
    let nap = request
        .header("x-nap")
        .map_or(0, |nap| nap.parse().expect("milliseconds"));
    sleep(ms(nap)).await;
    format!("{:?}", deadline::remaining())
}

#[tokio::test(start_paused = true)]
async fn a_trusted_callers_deadline_shortens_the_handlers_own() {
    let settings = || over(&ScriptedStore::new()).deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let limited = app(sleepy, settings());
    let with = |left| from("10.1.2.3", &[("x-nap", "20"), ("x-deadline-ms", left)]);
    assert_eq!(ask(&limited, with("50")).await.body, "30ms left");
    assert_eq!(
        ask(&limited, with("900")).await.body,
        "180ms left",
        "its own is shorter"
    );
    let (answered, took) = timed(&limited, with("19")).await;
    assert_eq!((answered.summary(), took), ((504, "timeout".into()), ms(19)));
    // Nothing is begun for a caller that has no time left.
    let (answered, took) = timed(&limited, with("0")).await;
    assert_eq!((answered.summary(), took), ((504, "timeout".into()), ms(0)));

    let unlimited = app(without_deadline, settings());
    let with = |left| from("10.1.2.3", &[("x-deadline-ms", left)]);
    assert_eq!(ask(&unlimited, with("70")).await.body, "Some(70ms)");
    for beyond in ["31536000000", "99999999999999999999999999"] {
        assert_eq!(ask(&unlimited, with(beyond)).await.body, "Some(1s)", "the ceiling");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_no_use_or_of_nobodys_trust_is_not_read() {
    let settings = over(&ScriptedStore::new()).deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let app = app(without_deadline, settings);
    for absurd in ["-1", "soon", "1.5", "", "1e3", "50ms"] {
        let answered = ask(&app, from("10.1.2.3", &[("x-deadline-ms", absurd)])).await;
        assert_eq!(answered.summary(), (200, "None".into()), "{absurd:?}");
    }
    let twice = [("x-deadline-ms", "50"), ("x-deadline-ms", "70")];
    assert_eq!(ask(&app, from("10.1.2.3", &twice)).await.body, "None");
    let stranger = from(
        "203.0.113.7",
        &[("x-deadline-ms", "50"), ("x-forwarded-for", "10.1.2.3")],
    );
    assert_eq!(ask(&app, stranger).await.body, "None");
}

#[resilient(deadline = "200ms")]
#[handler]
async fn starts_a_task(request: &poem::Request) {
    let tell: tokio::sync::mpsc::UnboundedSender<deadline::Cancelled> =
        request.extensions().get().cloned().expect("the test hears of it");
    let task = deadline::spawn(std::future::pending::<()>());
    tokio::spawn(async move { tell.send(task.await.expect("no panic").expect_err("it never ends")) });
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_handler_end_with_it() {
    let app = app(starts_a_task, over(&ScriptedStore::new()));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let request = || {
        let mut request = request(&[]);
        request.extensions_mut().insert(tell.clone());
        request
    };
    assert_eq!(ask(&app, request()).await.summary(), (504, "timeout".into()));
    assert_eq!(told.recv().await, Some(deadline::Cancelled::DeadlineExceeded));

    // Dropped, as it is when its client goes.
    let started = Instant::now();
    let dropped = tokio::time::timeout(ms(10), ask(&app, request())).await;
    assert!(dropped.is_err());
    assert_eq!(told.recv().await, Some(deadline::Cancelled::Abandoned));
    assert_eq!(started.elapsed(), ms(10));
}
