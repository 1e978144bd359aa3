//! The table of responses: what each case says, and that it says nothing else.

use poem::{Request, Result, handler, http::StatusCode};
use resilience::{
    Error, ErrorBody, Identity,
    breaker::{BreakerConfig, CircuitBreaker},
    resilient,
    testing::{Answer, ScriptedStore},
};
use serde_json::json;

use super::{app, ask, full, ms, over, request, room};

#[resilient(auth = "fail_closed", flag("responses", default = false), rate_limit(30, 60))]
#[handler]
async fn everything(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(30, 60, on_outage = "fail_closed"))]
#[handler]
async fn closed() {}

#[resilient(flag("responses-gate", default = false, blocks_when = "off"))]
#[handler]
async fn gated() {}

#[resilient(deadline = "50ms")]
#[handler]
async fn slow() {
    std::future::pending::<()>().await;
}

#[resilient(deadline = "1s")]
#[handler]
async fn dependent() -> Result<()> {
    let settings = BreakerConfig::default()
        .with_failures_in_a_row(1)
        .with_open_for(ms(2_500));
    let dependency = CircuitBreaker::new("dependency", settings).expect("valid settings");
    dependency.record_failure();
    dependency.try_acquire()?.success();
    Ok(())
}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];

/// A store that knows the caller and counts 18 requests.
fn healthy() -> ScriptedStore {
    ScriptedStore::new()
        .on_identity(Answer::ok(Some("user-42")))
        .on_take(Answer::ok(room(12, ms(33_001))))
}

/// What the quota of [`everything`] adds to an answer while there is room.
const LIMITER: [&str; 4] = [
    "ratelimit-policy: \"default\";q=30;w=60",
    "ratelimit: \"default\";r=12;t=34",
    "x-ratelimit-limit: 30",
    "x-ratelimit-remaining: 12",
];

#[tokio::test(start_paused = true)]
async fn a_request_that_passes_shows_its_quota() {
    let answered = ask(&app(everything, over(&healthy())), request(KEY)).await;
    assert_eq!(answered.summary(), (200, "user-42".into()));
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_key_is_told_so() {
    for headers in [&[][..], &[("x-api-key", "")]] {
        let answered = ask(&app(everything, over(&healthy())), request(headers)).await;
        assert_eq!(answered.summary(), (401, "missing_api_key".into()));
        let [policy, state, limit, remaining] = LIMITER;
        assert_eq!(
            answered.lines(),
            [policy, state, "www-authenticate: ApiKey", limit, remaining],
            "the limiter's headers stand on a 401 too"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_is_told_apart() {
    let store = healthy().on_identity(Answer::ok(None));
    let answered = ask(&app(everything, over(&store)), request(KEY)).await;
    assert_eq!(answered.summary(), (401, "invalid_api_key".into()));
    assert_eq!(answered.header("www-authenticate").as_deref(), Some("ApiKey"));
    assert_eq!(answered.header("retry-after"), None);
}

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_and_says_what_fell_back() {
    let answered = ask(&app(everything, over(&ScriptedStore::new().down())), request(KEY)).await;
    assert_eq!(answered.summary(), (503, "auth_unavailable".into()));
    assert_eq!(
        answered.lines(),
        [
            "retry-after: 30",
            "x-flag-fallback: responses",
            "x-ratelimit-fallback: open"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_in_an_outage_is_the_builders() {
    let settings = over(&ScriptedStore::new().down()).retry_after(ms(7_200));
    let answered = ask(&app(everything, settings), request(KEY)).await;
    assert_eq!(answered.header("retry-after").as_deref(), Some("8"));
}

#[tokio::test(start_paused = true)]
async fn a_flag_that_blocks_adds_nothing() {
    let store = healthy().on_flag(Answer::ok(Some(true)));
    let answered = ask(&app(everything, over(&store)), request(KEY)).await;
    assert_eq!(answered.summary(), (503, "feature_disabled".into()));
    assert_eq!(answered.lines(), LIMITER);
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_off_is_not_found() {
    let answered = ask(&app(gated, over(&healthy())), request(&[])).await;
    assert_eq!(answered.summary(), (404, "feature_disabled".into()));
    assert_eq!(answered.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn over_quota_says_when_to_retry_and_nothing_of_later_guards() {
    let store = ScriptedStore::new().down().on_take(Answer::ok(full(ms(4_001))));
    let answered = ask(&app(everything, over(&store)), request(KEY)).await;
    assert_eq!(answered.summary(), (429, "rate_limited".into()));
    assert_eq!(
        answered.lines(),
        [
            "ratelimit-policy: \"default\";q=30;w=60",
            "ratelimit: \"default\";r=0;t=5",
            "retry-after: 5",
            "x-ratelimit-limit: 30",
            "x-ratelimit-remaining: 0",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_fails_closed_refuses_in_an_outage() {
    let answered = ask(&app(closed, over(&ScriptedStore::new().down())), request(&[])).await;
    assert_eq!(answered.summary(), (503, "limiter_unavailable".into()));
    assert_eq!(answered.lines(), ["retry-after: 30", "x-ratelimit-fallback: closed"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_out_of_time_is_a_gateway_timeout() {
    let answered = ask(&app(slow, over(&healthy())), request(&[])).await;
    assert_eq!(answered.summary(), (504, "timeout".into()));
    assert_eq!(answered.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_of_a_dependency_says_when_to_retry() {
    let answered = ask(&app(dependent, over(&healthy())), request(&[])).await;
    assert_eq!(answered.summary(), (503, "circuit_open".into()));
    assert_eq!(answered.lines(), ["retry-after: 3"]);
}

#[tokio::test(start_paused = true)]
async fn bodies_are_json_unless_the_client_prefers_problem_details() {
    let missing = "No API key was sent.";
    let json = json!({"statusCode": 401, "error": "missing_api_key", "message": missing});
    let problem = json!({
        "type": "about:blank", "title": "Unauthorized", "status": 401, "detail": missing, "error": "missing_api_key"
    });
    let problem_wanted = &[("accept", "application/problem+json")][..];
    for (body, accept, media_type, expected) in [
        (ErrorBody::Negotiated, &[][..], "application/json", &json),
        (
            ErrorBody::Negotiated,
            problem_wanted,
            "application/problem+json",
            &problem,
        ),
        (ErrorBody::Json, problem_wanted, "application/json", &json),
        (ErrorBody::Problem, &[], "application/problem+json", &problem),
    ] {
        let answered = ask(&app(everything, over(&healthy()).error_body(body)), request(accept)).await;
        assert_eq!(answered.header("content-type").as_deref(), Some(media_type), "{body:?}");
        assert_eq!(answered.json(), *expected, "{body:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_follows_the_clients_format() {
    let wanted = request(&[("accept", "application/problem+json")]);
    let answered = ask(&app(slow, over(&healthy())), wanted).await;
    assert_eq!(
        answered.header("content-type").as_deref(),
        Some("application/problem+json")
    );
    assert_eq!(answered.json()["status"], 504);
}

/// Refuses as a guard would, with an error of its own or a breaker's, with or without guards' headers to carry.
#[resilient(rate_limit(30, 60))]
#[handler]
async fn refusing(request: &Request) -> Result<()> {
    match request.header("x-refuse") {
        Some("circuit") => {
            let settings = BreakerConfig::default().with_failures_in_a_row(1);
            let dependency = CircuitBreaker::new("dependency", settings).expect("valid settings");
            dependency.record_failure();
            let call = dependency.call(async { Err::<(), _>(poem::Error::from_status(StatusCode::IM_A_TEAPOT)) });
            call.await?;
        }
        Some("teapot") => {
            let dependency = CircuitBreaker::new("dependency", BreakerConfig::default()).expect("valid settings");
            let call = dependency.call(async { Err::<(), _>(poem::Error::from_status(StatusCode::IM_A_TEAPOT)) });
            call.await?;
        }
        _ => {
            return Err(Error::new(
                StatusCode::PAYMENT_REQUIRED,
                "plan_required",
                "This needs the paid plan.",
            )
            .into());
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_refuses_looks_like_what_a_guard_refuses() {
    let wanted = ("accept", "application/problem+json");
    let app = app(refusing, over(&healthy()));
    for (headers, status, error) in [
        (&[wanted][..], 402, "plan_required"),
        (&[wanted, ("x-refuse", "circuit")], 503, "circuit_open"),
    ] {
        let answered = ask(&app, request(headers)).await;
        assert_eq!(answered.status, status);
        assert_eq!(
            answered.header("content-type").as_deref(),
            Some("application/problem+json")
        );
        assert_eq!(answered.json()["error"], error);
        assert_eq!(answered.header("x-ratelimit-limit").as_deref(), Some("30"));
    }
    let plain = ask(&app, request(&[])).await;
    assert_eq!(plain.summary(), (402, "plan_required".into()));
}

#[tokio::test(start_paused = true)]
async fn a_calls_own_error_answers_what_it_answers_without_a_breaker() {
    let app = app(refusing, over(&healthy()));
    let answered = ask(&app, request(&[("x-refuse", "teapot")])).await;
    assert_eq!(answered.status, StatusCode::IM_A_TEAPOT);
}
