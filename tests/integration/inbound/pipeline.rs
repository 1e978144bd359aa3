//! A pipeline of the user's own around a whole app.

use std::{net::SocketAddr, time::Duration};

use poem::{Endpoint, EndpointExt, Request, Response, Route, get, handler, http::StatusCode};
use resilience::{
    Limit, Resilience,
    breaker::{BreakerConfig, CircuitBreaker},
    concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority},
    deadline,
    pipeline::{Context, Pipeline, RateLimiter, Verdict},
    resilient,
};
use resilience_tests::request_from;
use tokio::time::sleep;

use super::{answered, ask, header, ms, request};

#[handler]
async fn takes(request: &Request) -> poem::Result<String> {
    if request.header("x-fail").is_some() {
        return Err(StatusCode::BAD_GATEWAY.into());
    }
    sleep(ms(50)).await;
    Ok(format!("{:?}", deadline::remaining()))
}

#[resilient(rate_limit(5, 60))]
#[handler]
async fn guarded(body: String) -> String {
    body
}

fn routes() -> Route {
    Route::new().at("/", get(takes)).at("/guarded", poem::post(guarded))
}

fn resilience() -> Resilience {
    Resilience::builder().memory().build().expect("valid settings")
}

/// Of the request that the call is made for.
fn asked_priority(context: &Context) -> Priority {
    let word = context.request().and_then(|request| request.headers.get("x-priority"));
    let word = word.and_then(|word| word.to_str().ok()?.parse().ok());
    word.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn it_knows_the_request_and_its_rejections_are_answers() {
    let limit = ConcurrencyLimit::new("app", ConcurrencyConfig::new(1).with_queue(1)).expect("valid");
    let pipeline = Pipeline::builder()
        .bulkhead_by(limit.clone(), asked_priority)
        .deadline(ms(200))
        .build();
    let app = routes().with(resilience().inbound_pipeline(pipeline));
    assert_eq!(ask(&app, "/").await, (200, "Some(150ms)".into()));

    let mut first = Box::pin(ask(&app, "/"));
    let mut waits = Box::pin(ask(&app, "/"));
    assert!(futures_util::poll!(first.as_mut()).is_pending() && futures_util::poll!(waits.as_mut()).is_pending());
    assert_eq!((limit.in_flight(), limit.queued()), (1, 1));
    let background = app.get_response(request("/", &[("x-priority", "background")])).await;
    assert_eq!(header(&background, "retry-after"), "1");
    assert_eq!(answered(background).await, (503, "overloaded".into()));
    let mut critical = Box::pin(app.get_response(request("/", &[("x-priority", "critical")])));
    assert!(futures_util::poll!(critical.as_mut()).is_pending());
    assert_eq!(waits.await, (503, "overloaded".into()), "it makes room");
    assert_eq!(first.await.0, 200);
    assert_eq!(critical.await.status().as_u16(), 200);
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_goes_leaves_nothing_behind() {
    let limit = ConcurrencyLimit::new("app", ConcurrencyConfig::new(1).with_queue(1)).expect("valid");
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let app = routes().with(resilience().inbound_pipeline(pipeline));
    let mut asked = [Box::pin(ask(&app, "/")), Box::pin(ask(&app, "/"))];
    for asked in &mut asked {
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
    }
    assert_eq!((limit.in_flight(), limit.queued()), (1, 1));
    drop(asked);
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_and_a_rate_limit_may_stand_in_it() {
    let breaker = CircuitBreaker::new("app", BreakerConfig::default().with_failures_in_a_row(2)).expect("valid");
    let limiter = RateLimiter::local("app", Limit::new(4, Duration::from_secs(60))).expect("valid");
    let path = |context: &Context| {
        context
            .request()
            .map_or_else(String::new, |request| request.uri.path().to_owned())
    };
    let pipeline = Pipeline::builder()
        .classify_by(|answer: Result<&Response, &poem::Error>| match answer {
            Ok(_) => Verdict::success(),
            Err(error) if error.status().is_server_error() => Verdict::failure(),
            Err(_) => Verdict::neutral(),
        })
        .rate_limit_by(limiter, path)
        .breaker(breaker)
        .build();
    let app = routes().with(resilience().inbound_pipeline(pipeline));
    for _ in 0..2 {
        let failed = app.get_response(request("/", &[("x-fail", "yes")])).await;
        assert_eq!(failed.status().as_u16(), 502);
    }
    assert_eq!(ask(&app, "/").await, (503, "circuit_open".into()));
    assert_eq!(ask(&app, "/").await, (503, "circuit_open".into()));
    assert_eq!(
        ask(&app, "/").await,
        (429, "rate_limited".into()),
        "four have been counted"
    );
    // A bucket for each path.
    assert_eq!(ask(&app, "/nowhere").await, (503, "circuit_open".into()));
}

#[tokio::test(start_paused = true)]
async fn requests_for_what_is_not_there_do_not_open_the_apps_circuit() {
    let breaker = CircuitBreaker::new("app", BreakerConfig::default()).expect("valid");
    let pipeline = Pipeline::builder().breaker(breaker).build();
    let app = routes().with(resilience().inbound_pipeline(pipeline));
    for _ in 0..10 {
        assert_eq!(ask(&app, "/wp-login.php").await.0, 404);
    }
    assert_eq!(ask(&app, "/").await.0, 200);
    // It stays an error, for whoever catches it.
    let outcome = app.call(request("/wp-login.php", &[])).await;
    assert!(outcome.is_err_and(|error| error.is::<poem::error::NotFoundError>()));
}

#[tokio::test(start_paused = true)]
async fn a_callers_deadline_bounds_all_of_it() {
    let limit = ConcurrencyLimit::new("app", ConcurrencyConfig::new(1).with_queue(1)).expect("valid");
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let settings = Resilience::builder()
        .memory()
        .deadline_header("x-deadline-ms", ms(1_000), ["10.0.0.0/8"]);
    let app = routes().with(settings.build().expect("valid settings").inbound_pipeline(pipeline));
    let asked = |left: &str| {
        let address: SocketAddr = "10.1.2.3:4711".parse().expect("an address");
        request_from(address, &[("x-deadline-ms", left)])
    };
    let begun = tokio::time::Instant::now();
    let late = app.get_response(asked("30")).await;
    assert_eq!(answered(late).await, (504, "timeout".into()));
    assert_eq!(begun.elapsed(), ms(30));
    assert_eq!(
        answered(app.get_response(asked("0")).await).await,
        (504, "timeout".into())
    );
    assert_eq!(
        answered(app.get_response(asked("80")).await).await,
        (200, "Some(30ms)".into())
    );
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_body_goes_on_and_attributes_further_in_are_installed() {
    let app = routes().with(resilience().inbound_pipeline(Pipeline::builder().deadline(ms(200)).build()));
    let request = Request::builder()
        .method(poem::http::Method::POST)
        .uri("/guarded".parse().expect("a path"))
        .body("untouched");
    let response = app.get_response(request).await;
    assert_eq!(header(&response, "x-ratelimit-remaining"), "4");
    assert_eq!(answered(response).await, (200, "untouched".into()));
}
