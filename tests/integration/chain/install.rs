//! How the runtime reaches the handlers, and the guards' headers the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use poem::{
    Endpoint, EndpointExt, Error, IntoResponse, Response, Result, Route, get, handler, http::StatusCode,
    middleware::CatchPanic,
};
use resilience::{
    Resilience, resilient,
    testing::{Answer, ScriptedStore},
};

use super::{app, ask, ms, over, request, room};

#[resilient(rate_limit(30, 60))]
#[handler]
async fn failing() -> Result<()> {
    Err(Error::from_string("no such thing", StatusCode::NOT_FOUND))
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn panicking() {
    panic!("the handler's own");
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn hanging() {
    std::future::pending().await
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn pretending() -> Response {
    Response::builder()
        .header("x-ratelimit-limit", "9999")
        .header("ratelimit", "lies")
        .header("x-own", "stays")
        .finish()
}

static RAN: AtomicUsize = AtomicUsize::new(0);

#[resilient(rate_limit(30, 60))]
#[handler]
async fn counting_runs() {
    RAN.fetch_add(1, Ordering::SeqCst);
}

#[resilient(deadline = "1s")]
#[handler]
async fn with_no_header() -> Result<()> {
    Err(Error::from_string("no such thing", StatusCode::NOT_FOUND))
}

fn counted() -> ScriptedStore {
    ScriptedStore::new().on_take(Answer::ok(room(12, ms(33_000))))
}

fn runtime() -> Resilience {
    over(&counted()).build().expect("valid settings")
}

const LIMITER: [&str; 4] = [
    "ratelimit-policy: \"default\";q=30;w=60",
    "ratelimit: \"default\";r=12;t=33",
    "x-ratelimit-limit: 30",
    "x-ratelimit-remaining: 12",
];

#[tokio::test(start_paused = true)]
async fn without_a_runtime_the_handler_does_not_run() {
    let answered = ask(&counting_runs, request(&[])).await;
    assert_eq!(answered.summary(), (500, "resilience_not_installed".into()));
    assert_eq!(answered.lines(), [""; 0]);
    assert_eq!(RAN.load(Ordering::SeqCst), 0);

    assert_eq!(
        ask(&app(counting_runs, over(&counted())), request(&[])).await.status,
        200
    );
    assert_eq!(RAN.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handlers_error_carries_the_headers() {
    let answered = ask(&failing.with(runtime()), request(&[])).await;
    assert_eq!(
        (answered.status.as_u16(), answered.body.as_str()),
        (404, "no such thing")
    );
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn a_handlers_error_stays_an_error_for_who_catches_it() {
    let app = Route::new()
        .at("/", get(failing))
        .catch_all_error(|error: Error| async move {
            assert_eq!(error.status(), StatusCode::NOT_FOUND);
            "caught".into_response()
        })
        .with(runtime());
    let answered = ask(&app, request(&[])).await;
    assert_eq!(answered.summary(), (200, "caught".into()));
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn as_data_the_chain_answers_for_the_error() {
    let app = failing.catch_all_error(|_: Error| async { "caught" }).data(runtime());
    let answered = ask(&app, request(&[])).await;
    assert_eq!(
        (answered.status.as_u16(), answered.body.as_str()),
        (404, "no such thing")
    );
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn an_error_with_no_header_to_carry_leaves_as_it_is() {
    let installed = with_no_header.with(runtime());
    assert!(installed.call(request(&[])).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_guards_know_better_than_the_handler() {
    let mut lines = LIMITER.to_vec();
    lines.insert(2, "x-own: stays");
    assert_eq!(ask(&pretending.with(runtime()), request(&[])).await.lines(), lines);
    assert_eq!(ask(&pretending.data(runtime()), request(&[])).await.lines(), lines);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_for_who_catches_it_and_the_next_request_is_served() {
    let app = panicking.with(CatchPanic::new()).with(runtime());
    for _ in 0..3 {
        let answered = ask(&app, request(&[])).await;
        assert_eq!(answered.status, 500);
        assert_eq!(answered.lines(), LIMITER);
    }
}

#[tokio::test(start_paused = true)]
async fn who_answers_for_a_handler_that_it_dropped_sends_the_headers_too() {
    let app = hanging
        .around(|endpoint, request| async move {
            let answer = tokio::time::timeout(ms(500), endpoint.call(request)).await;
            answer.unwrap_or_else(|_elapsed| Ok("dropped".into_response()))
        })
        .with(runtime());
    let answered = ask(&app, request(&[])).await;
    assert_eq!(answered.summary(), (200, "dropped".into()));
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_an_extractor() {
    let shows_state = Route::new().at("/", get(readyz));
    let answered = ask(&shows_state.with(runtime()), request(&[])).await;
    assert_eq!(answered.summary(), (200, "degraded: false".into()));
    let answered = ask(&readyz, request(&[])).await;
    assert_eq!(answered.summary(), (500, "resilience_not_installed".into()));
}

#[handler]
async fn readyz(resilience: Resilience) -> String {
    format!("degraded: {}", resilience.health().await.is_degraded())
}
