//! Quotas by name that change while services run: over one Redis, and by a file.

mod blocked;
mod file;
mod store;

use std::time::Duration;

use poem::{Endpoint, EndpointExt, Request, Response, Result, endpoint::make_sync, handler, http::StatusCode};
use resilience::{
    __private::run,
    Builder, Limit, LimitSource, LimitsError, OnOutage, Resilience,
    policy::{Key, Policy, RateLimit},
    resilient,
};
use resilience_tests::{RedisServer, eventually};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Defined by its attribute, so that every runtime of these tests knows it.
#[resilient(rate_limit(100, "1h", key = global, name = "limits-api"))]
#[handler]
async fn api() {}

/// A handler that did not register itself: only who calls it knows its quota.
struct Unregistered(&'static Policy);

impl Endpoint for Unregistered {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        run(self.0, request, make_sync(|_| ())).await
    }
}

fn over(redis: &RedisServer) -> Builder {
    Resilience::builder()
        .redis(redis.url())
        .rate_limit_deadline(Duration::from_secs(1))
}

/// What answers say the limit is.
async fn limit(app: &impl Endpoint, request: Request) -> Option<String> {
    let response = app.get_response(request).await;
    let limit = response.headers().get("x-ratelimit-limit")?;
    Some(limit.to_str().expect("a number").to_owned())
}

/// Waits until requests are answered by this limit.
async fn serves(app: &impl Endpoint, expected: u32) {
    let expected = Some(expected.to_string());
    let what = format!("the limit is {expected:?}");
    eventually(&what, async || limit(app, Request::default()).await == expected).await;
}

/// What is in force for the quota of these tests, and who defines it.
fn in_force(resilience: &Resilience) -> (Option<u32>, Option<LimitSource>, u64) {
    let all = resilience.limits().list();
    let found = all
        .iter()
        .find(|limit| limit.name == "limits-api")
        .expect("a handler uses it");
    (found.limit.map(|limit| limit.requests()), found.source, found.version)
}

#[tokio::test]
async fn the_builder_comes_before_the_attribute_and_the_summary_says_what_holds() {
    let builder = Resilience::builder().memory().limit("limits-api", Limit::new(7, HOUR));
    let resilience = builder.build().unwrap();
    assert_eq!(in_force(&resilience), (Some(7), Some(LimitSource::Builder), 1));
    let policies = resilience.policies();
    let summary = policies
        .iter()
        .find(|policy| policy.module().ends_with("::limits"))
        .unwrap();
    assert_eq!(
        summary.guards()[0].guard,
        "rate_limit limits-api 7 in 3600s by everybody"
    );
    let app = api.with(resilience.clone());
    assert_eq!(limit(&app, Request::default()).await.as_deref(), Some("7"));
    resilience
        .limits()
        .set("limits-api", Limit::new(3, HOUR).with_on_outage(OnOutage::FailClosed))
        .await
        .unwrap();
    assert_eq!(in_force(&resilience).0, Some(3));
    // What was counted under the old limit counts under the new one.
    for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(app.get_response(Request::default()).await.status(), expected);
    }
}

#[tokio::test]
async fn only_known_names_and_sound_limits_are_set() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let error = resilience
        .limits()
        .set("limits-ap", Limit::new(7, HOUR))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, LimitsError::Unknown { known, .. } if known.contains(&"limits-api".to_owned())),
        "{error}"
    );
    let error = resilience
        .limits()
        .set("limits-api", Limit::new(0, HOUR))
        .await
        .unwrap_err();
    assert!(matches!(error, LimitsError::Invalid(_)), "{error}");
    for limit in [
        Limit::new(0, HOUR),
        Limit::new(1, HOUR * 24 * 367),
        Limit::new(5, HOUR).with_burst(2),
    ] {
        Resilience::builder().memory().limit("x", limit).build().unwrap_err();
    }
    Resilience::builder()
        .memory()
        .limit("a b", Limit::new(1, HOUR))
        .build()
        .unwrap_err();
}

#[tokio::test]
async fn a_quota_that_nobody_defines_answers_as_in_an_outage() {
    static OPEN: Policy = Policy::new("limits", "open").with_rate_limits(&[
        RateLimit::named("limits-nobody"),
        RateLimit::new(5, HOUR).with_key(Key::Global),
    ]);
    static CLOSED: Policy = Policy::new("limits", "closed").with_rate_limits(&[
        RateLimit::named("limits-nobody").with_on_outage(OnOutage::FailClosed),
        RateLimit::new(5, HOUR).with_key(Key::Global),
    ]);
    let resilience = Resilience::builder().memory().build().unwrap();
    let open = Unregistered(&OPEN).with(resilience.clone());
    let closed = Unregistered(&CLOSED).with(resilience.clone());
    let answer = open.get_response(Request::default()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-ratelimit-fallback"], "open");
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "4", "the other quota counts");
    let answer = closed.get_response(Request::default()).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["x-ratelimit-fallback"], "closed");
    resilience
        .limits()
        .set("limits-nobody", Limit::new(9, HOUR))
        .await
        .unwrap();
    let answer = closed.get_response(Request::default()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(
        answer.headers()["ratelimit-policy"],
        "\"limits-nobody\";q=9;w=3600, \"default\";q=5;w=3600"
    );
    assert!(
        answer.headers()["ratelimit"]
            .to_str()
            .unwrap()
            .contains("\"default\";r=4"),
        "a refusal took nothing"
    );
}
