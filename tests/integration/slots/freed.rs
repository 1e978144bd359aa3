//! When a slot is free again.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use poem::{Body, Endpoint, EndpointExt, Response, handler, http::StatusCode, middleware::CatchPanic, web::Data};
use resilience::{LoginOutcome, Resilience, concurrency::ConcurrencyLimit, resilient};
use tokio::time::Instant;

use super::{Gate, app, request, settings, settle, two_at_once};

#[resilient(concurrency(1), deadline = "50ms")]
#[handler]
async fn ends(request: &poem::Request) -> poem::Result<Response> {
    match request.header("x-who") {
        Some("error") => Err(StatusCode::BAD_GATEWAY.into()),
        Some("panic") => panic!("as a handler may"),
        Some("slow") => std::future::pending().await,
        Some("events") => Ok(Response::builder().content_type("text/event-stream").body(endless())),
        Some("stream") => Ok(Response::builder().body(endless())),
        Some("small") => Ok(Response::builder().body("twelve bytes")),
        Some("large") => Ok(Response::builder().body("x".repeat(LARGE))),
        _ => Ok(().into()),
    }
}

/// More than a socket takes from whoever reads or not.
const LARGE: usize = 100_000;

fn endless() -> Body {
    Body::from_bytes_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("more ")))
}

fn ending() -> (impl Endpoint<Output = Response>, ConcurrencyLimit) {
    let resilience = settings()
        .send_timeout(Duration::from_secs(2))
        .build()
        .expect("valid settings");
    let limits = resilience.concurrency_limits();
    let limit = limits.into_iter().find(|limit| limit.name().ends_with("::ends"));
    (
        ends.with(CatchPanic::new()).with(resilience),
        limit.expect("the handler's"),
    )
}

#[tokio::test(start_paused = true)]
async fn errors_panics_and_timeouts_free_it() {
    let (app, limit) = ending();
    for (what, status) in [("error", 502), ("panic", 500), ("slow", 504), ("", 200)] {
        let response = app.get_response(request(what)).await;
        assert_eq!(response.status().as_u16(), status, "{what}");
        drop(response);
        assert_eq!(limit.in_flight(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_frees_it_wherever_its_request_is() {
    let (gate, _begun) = Gate::new();
    let (app, limit) = app(settings(), two_at_once, gate.clone());
    for waiting in 0..4 {
        let mut asked: Vec<_> = (0..=waiting)
            .map(|_| Box::pin(app.get_response(request("a"))))
            .collect();
        for asked in &mut asked {
            assert!(futures_util::poll!(asked.as_mut()).is_pending());
        }
        assert_eq!(limit.in_flight() as usize + limit.queued(), waiting + 1);
        drop(asked);
        assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_held_until_the_body_has_been_sent() {
    let (app, limit) = ending();
    let response = app.get_response(request("large")).await;
    assert_eq!(limit.in_flight(), 1, "nothing has been sent");
    assert_eq!(app.get_response(request("")).await.status().as_u16(), 503);
    assert_eq!(response.into_body().into_string().await.expect("a text").len(), LARGE);
    assert_eq!(limit.in_flight(), 0);

    // What is as good as sent is not waited for.
    let response = app.get_response(request("small")).await;
    assert_eq!(limit.in_flight(), 0);
    assert_eq!(
        response.into_body().into_string().await.expect("a text"),
        "twelve bytes"
    );

    // Dropped half-way, as by a client that hangs up.
    let mut body = app
        .get_response(request("stream"))
        .await
        .into_body()
        .into_bytes_stream();
    assert!(body.next().await.is_some());
    assert_eq!(limit.in_flight(), 1);
    drop(body);
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_frees_it_and_ends_in_an_error() {
    let (app, limit) = ending();
    let begun = Instant::now();
    let mut body = app
        .get_response(request("stream"))
        .await
        .into_body()
        .into_bytes_stream();
    assert!(body.next().await.expect("a part").is_ok());
    // Nobody reads on: the slot is free all the same.
    tokio::time::sleep(Duration::from_millis(1_999)).await;
    assert_eq!(limit.in_flight(), 1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    settle().await;
    assert_eq!(limit.in_flight(), 0);
    assert!(begun.elapsed() < Duration::from_secs(3));
    let mut last = None;
    while let Some(part) = body.next().await {
        last = Some(part.map(drop));
        if last.as_ref().is_some_and(Result::is_err) {
            break;
        }
    }
    assert!(last.expect("it goes on").is_err());
}

#[tokio::test(start_paused = true)]
async fn an_event_stream_frees_it_with_its_headers() {
    let (app, limit) = ending();
    let response = app.get_response(request("events")).await;
    assert_eq!(limit.in_flight(), 0);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_bytes_stream();
    assert!(body.next().await.expect("an event").is_ok());
}

#[resilient(lockout(2, "15m", key = ip), concurrency(1))]
#[handler]
async fn login(Data(gate): Data<&Gate>) -> Response {
    gate.pass("login").await;
    let mut response = Response::default();
    response.set_data(LoginOutcome::Failed);
    response
}

#[tokio::test(start_paused = true)]
async fn who_is_shed_has_made_no_attempt() {
    let (gate, _begun) = Gate::new();
    let resilience: Resilience = settings().build().expect("valid settings");
    let app = login.data(gate.clone()).with(resilience);
    let mut first = Box::pin(app.get_response(request("a")));
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    assert_eq!(app.get_response(request("b")).await.status().as_u16(), 503);
    settle().await;
    gate.open();
    assert_eq!(first.await.status().as_u16(), 200);
    // One of the two attempts has failed. Had the shed one counted, this would be refused.
    gate.open();
    assert_eq!(app.get_response(request("c")).await.status().as_u16(), 200);
    assert_eq!(app.get_response(request("d")).await.status().as_u16(), 429);
}
