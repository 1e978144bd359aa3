//! Guards around a whole app: what they answer, and how they go together with attributes further in.

mod pipeline;

use std::time::Duration;

use poem::{Endpoint, EndpointExt, Request, Response, Route, get, handler, http::StatusCode};
use resilience::{
    Algorithm, Error, Limit, LimitSource, OnOutage, Resilience,
    breaker::{BreakerConfig, CircuitBreaker},
    concurrency::ConcurrencyConfig,
    deadline,
    inbound::{Inbound, InboundBuilder, InboundError, Key, Mode, RateLimit},
    resilient,
    store::Taken,
    testing::{Answer, ScriptedStore},
};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[handler]
async fn plain() -> &'static str {
    "plain"
}

#[handler]
async fn slow() -> String {
    sleep(MINUTE).await;
    String::new()
}

#[handler]
async fn left() -> String {
    format!("{:?}", deadline::remaining())
}

#[handler]
async fn fails(request: &Request) -> poem::Result<()> {
    match request.header("x-fail") {
        Some("refusal") => Err(Error::new(StatusCode::PAYMENT_REQUIRED, "plan_required", "A plan.").into()),
        Some("deadline") => Ok(deadline::scope(ms(1), std::future::pending::<()>()).await?),
        Some("breaker") => {
            let breaker = CircuitBreaker::new("x", BreakerConfig::default()).expect("valid");
            for _ in 0..5 {
                breaker.record_failure();
            }
            let call = breaker.call(async { Ok::<(), Error>(()) });
            Ok(call.await?)
        }
        Some("wrapped") => {
            let cause: Box<dyn std::error::Error + Send + Sync> =
                Box::new(std::io::Error::other(deadline::DeadlineExceeded));
            Err(cause.into())
        }
        Some("own") => {
            let cause: Box<dyn std::error::Error + Send + Sync> = Box::new(deadline::DeadlineExceeded);
            Err((StatusCode::IM_A_TEAPOT, cause).into())
        }
        _ => Err(StatusCode::NOT_FOUND.into()),
    }
}

#[resilient(rate_limit(5, 60), deadline = "1s")]
#[handler]
async fn with_its_own() -> String {
    format!("{:?}", deadline::remaining())
}

#[resilient(rate_limit(100, 60, name = "shared"))]
#[handler]
async fn by_the_same_name() -> &'static str {
    "counted once"
}

#[resilient(rate_limit(100, 60, name = "shared", cost = 3))]
#[handler]
async fn by_the_same_name_at_a_higher_cost() -> &'static str {
    "counted once"
}

#[resilient(rate_limit(100, 60, name = "shared", mode = "observe"))]
#[handler]
async fn observed_by_the_same_name() -> &'static str {
    "counted once"
}

fn app(guards: Inbound) -> impl Endpoint<Output = Response> {
    Route::new()
        .at("/plain", get(plain))
        .at("/slow", get(slow))
        .at("/left", get(left))
        .at("/fails", get(fails))
        .at("/own", get(with_its_own))
        .at("/shared", get(by_the_same_name))
        .at("/shared/observed", get(observed_by_the_same_name))
        .at("/shared/3", get(by_the_same_name_at_a_higher_cost))
        .with(guards)
}

fn over(store: &ScriptedStore) -> Resilience {
    Resilience::builder()
        .store(store.clone())
        .limit("shared", Limit::new(100, MINUTE))
        .build()
        .expect("valid settings")
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request {
    let mut request = Request::builder().uri(path.parse().expect("a path"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.finish()
}

async fn ask(app: &impl Endpoint<Output = Response>, path: &str) -> (u16, String) {
    answered(app.get_response(request(path, &[])).await).await
}

/// Status and code of a refusal; the body of anything else stands for its code.
async fn answered(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().into_string().await.expect("a text");
    let json: Option<serde_json::Value> = serde_json::from_str(&body).ok();
    let code = json.and_then(|json| Some(json.get("error")?.as_str()?.to_owned()));
    (status, code.unwrap_or(body))
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or_else(String::new, |value| value.to_str().expect("ASCII").to_owned())
}

const fn taken(allowed: bool, remaining: u32) -> Taken {
    Taken {
        allowed,
        remaining,
        retry_after: Duration::from_secs(7),
        reset: Duration::from_secs(9),
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_comes_before_the_slot_and_the_slot_before_the_deadline() {
    let store = ScriptedStore::new();
    let resilience = over(&store);
    let guards = resilience
        .inbound("app")
        .rate_limit(RateLimit::new(30, MINUTE))
        .concurrency(ConcurrencyConfig::new(1))
        .deadline(ms(200));
    let app = app(guards.build().expect("valid"));
    let mut holder = Box::pin(app.get_response(request("/slow", &[])));
    assert!(futures_util::poll!(holder.as_mut()).is_pending());
    assert_eq!(ask(&app, "/plain").await, (503, "overloaded".into()));
    store.on_take(Answer::ok(taken(false, 0)));
    let refused = app.get_response(request("/plain", &[])).await;
    assert_eq!(header(&refused, "retry-after"), "7");
    assert_eq!(
        answered(refused).await,
        (429, "rate_limited".into()),
        "no slot is asked for"
    );
    let begun = Instant::now();
    assert_eq!(answered(holder.await).await, (504, "timeout".into()));
    assert_eq!(begun.elapsed(), ms(200));
    assert_eq!(
        ask(&app, "/nowhere").await.0,
        429,
        "unknown routes are counted like any other"
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_of_handlers_are_answered_and_all_else_passes_through() {
    let resilience = over(&ScriptedStore::new());
    let app = app(resilience.inbound("app").deadline(MINUTE).build().expect("valid"));
    for (how, expected) in [
        ("refusal", (402, "plan_required")),
        ("deadline", (504, "timeout")),
        ("breaker", (503, "circuit_open")),
        ("wrapped", (504, "timeout")),
        ("own", (418, "the deadline was exceeded")),
        ("", (404, "")),
    ] {
        let response = app.get_response(request("/fails", &[("x-fail", how)])).await;
        let (status, code) = answered(response).await;
        assert_eq!((status, &*code), expected, "{how}");
    }
    assert_eq!(ask(&app, "/nowhere").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn quotas_of_both_are_told_and_the_deadline_is_the_shorter_one() {
    let store = ScriptedStore::new();
    let resilience = over(&store);
    let guards = |builder: InboundBuilder| app(builder.build().expect("valid"));
    let app_ = guards(
        resilience
            .inbound("app")
            .rate_limit(RateLimit::new(30, MINUTE))
            .deadline(ms(300)),
    );
    store.on_take(Answer::ok(taken(true, 4)));
    let response = app_.get_response(request("/own", &[])).await;
    assert_eq!(store.calls().take, 2, "two quotas");
    assert_eq!(
        header(&response, "ratelimit-policy"),
        r#""default";q=30;w=60, "default";q=5;w=60"#
    );
    assert_eq!(
        header(&response, "ratelimit"),
        r#""default";r=4;t=9, "default";r=4;t=9"#
    );
    assert_eq!(answered(response).await, (200, "Some(300ms)".into()));
    assert_eq!(ask(&app_, "/left").await.1, "Some(300ms)");
    let longer = guards(resilience.inbound("longer").deadline(MINUTE));
    assert_eq!(ask(&longer, "/own").await.1, "Some(1s)");
}

#[tokio::test(start_paused = true)]
async fn one_quota_counts_a_request_once() {
    let store = ScriptedStore::new().on_take(Answer::ok(taken(true, 40)));
    let resilience = over(&store);
    let app = app(resilience
        .inbound("app")
        .rate_limit(RateLimit::named("shared"))
        .build()
        .expect("valid"));
    let response = app.get_response(request("/shared", &[])).await;
    assert_eq!(store.calls().take, 1);
    assert_eq!(header(&response, "ratelimit-policy"), r#""shared";q=100;w=60"#);
    assert_eq!(header(&response, "x-ratelimit-remaining"), "40");
    assert_eq!(answered(response).await, (200, "counted once".into()));
    // What is dearer further in pays the difference.
    let response = app.get_response(request("/shared/3", &[])).await;
    assert_eq!(store.calls().take, 3);
    assert_eq!(header(&response, "ratelimit-policy"), r#""shared";q=100;w=60"#);
}

#[tokio::test(start_paused = true)]
async fn the_embedded_store_counts_it_once_too() {
    let resilience = Resilience::builder().memory().limit("shared", Limit::new(10, MINUTE));
    let resilience = resilience.build().expect("valid settings");
    let app = app(resilience
        .inbound("app")
        .rate_limit(RateLimit::named("shared"))
        .build()
        .expect("valid"));
    for remaining in ["9", "8"] {
        let response = app.get_response(request("/shared", &[])).await;
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    for remaining in ["7", "6"] {
        let response = app.get_response(request("/shared/observed", &[])).await;
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    for remaining in ["3", "0"] {
        let response = app.get_response(request("/shared/3", &[])).await;
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    let response = app.get_response(request("/shared/3", &[])).await;
    assert_eq!(
        response.status().as_u16(),
        429,
        "one is taken outside, and for the other two there is no room"
    );
}

#[tokio::test(start_paused = true)]
async fn what_an_observing_quota_has_counted_is_counted() {
    let resilience = Resilience::builder().memory().limit("shared", Limit::new(10, MINUTE));
    let resilience = resilience.build().expect("valid settings");
    let observing = RateLimit::named("shared").with_mode(Mode::Observe);
    let app = app(resilience.inbound("app").rate_limit(observing).build().expect("valid"));
    let response = app.get_response(request("/shared/3", &[])).await;
    assert_eq!(header(&response, "x-ratelimit-remaining"), "7", "three, and not four");
}

#[resilient(rate_limit(100, 60, name = "tenants", key = header("x-tenant")))]
#[handler]
async fn by_tenant() {}

#[tokio::test(start_paused = true)]
async fn another_client_further_in_is_counted_by_itself() {
    let resilience = Resilience::builder().memory().build().expect("valid settings");
    let by_tenant_outside = RateLimit::new(100, MINUTE)
        .with_name("tenants")
        .with_key(Key::Header("x-tenant"));
    let guards = resilience.inbound("app").rate_limit(by_tenant_outside);
    // Somebody in between knows better who it is.
    let renamed = by_tenant.before(|mut request: Request| async move {
        request
            .headers_mut()
            .insert("x-tenant", "acme".parse().expect("a value"));
        Ok(request)
    });
    let app = renamed.with(guards.build().expect("valid"));
    for remaining in ["99", "98"] {
        let tenant = format!("anybody-{remaining}");
        let response = app.get_response(request("/", &[("x-tenant", &tenant)])).await;
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining, "of acme");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_further_out_writes_the_headers_and_user_code_sees_errors() {
    let store = ScriptedStore::new().on_take(Answer::ok(taken(true, 4)));
    let resilience = over(&store);
    let guards = resilience.inbound("app").rate_limit(RateLimit::new(30, MINUTE));
    let app = app(guards.build().expect("valid"))
        .catch_all_error(|error: poem::Error| async move {
            Response::builder()
                .status(StatusCode::IM_A_TEAPOT)
                .body(error.to_string())
        })
        .with(resilience.clone());
    let response = app.get_response(request("/fails", &[("x-fail", "refusal")])).await;
    assert_eq!(header(&response, "x-ratelimit-remaining"), "4");
    assert_eq!(answered(response).await, (418, "plan_required: A plan.".into()));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_answered_as_the_quota_says() {
    let store = ScriptedStore::new().down();
    let resilience = over(&store);
    let quota = RateLimit::new(30, MINUTE);
    let open = app(resilience.inbound("open").rate_limit(quota).build().expect("valid"));
    let response = open.get_response(request("/plain", &[])).await;
    assert_eq!(header(&response, "x-ratelimit-fallback"), "open");
    assert_eq!(answered(response).await.0, 200);
    let closed = quota.with_on_outage(OnOutage::FailClosed);
    let closed = app(resilience.inbound("closed").rate_limit(closed).build().expect("valid"));
    assert_eq!(ask(&closed, "/plain").await, (503, "limiter_unavailable".into()));
}

#[tokio::test]
async fn options_that_make_no_sense_are_named() {
    let resilience = over(&ScriptedStore::new());
    let inbound = || resilience.inbound("app");
    let quota = RateLimit::new(30, MINUTE);
    let bucket = RateLimit::new(30, MINUTE)
        .with_algorithm(Algorithm::TokenBucket)
        .with_burst(5);
    for (builder, named) in [
        (inbound().rate_limit(RateLimit::new(0, MINUTE)), "`limit`"),
        (inbound().rate_limit(RateLimit::new(1, Duration::ZERO)), "`window`"),
        (inbound().rate_limit(quota.with_key(Key::User)), "`key`"),
        (inbound().rate_limit(quota.with_cost(31)), "`cost`"),
        (inbound().rate_limit(bucket.with_cost(6)), "`cost`"),
        (inbound().rate_limit(quota.with_name("a b")), "`name`"),
        (inbound().rate_limit(RateLimit::named("nobody")), "`name`"),
        (inbound().rate_limit(quota.with_deadline(Duration::ZERO)), "`deadline`"),
        (inbound().rate_limit(quota.with_local_share(0)), "`local_share`"),
        (inbound().concurrency(ConcurrencyConfig::new(0)), "`concurrency`"),
        (inbound().deadline(Duration::ZERO), "`deadline`"),
        (inbound().deadline(2 * 60 * MINUTE), "`deadline`"),
    ] {
        let problem: InboundError = builder.build().expect_err(named);
        assert!(problem.to_string().contains(named), "{named}: {problem}");
    }
}

#[tokio::test]
async fn a_name_is_taken_while_it_is_used() {
    let resilience = over(&ScriptedStore::new());
    let guards = resilience.inbound("app").build().expect("valid");
    let again = resilience.inbound("app").build();
    assert_eq!(again.expect_err("it is taken"), InboundError::NameTaken("app"));
    let several = (app(guards.clone()), app(guards));
    assert!(resilience.inbound("app").build().is_err());
    drop(several);
    assert!(resilience.inbound("app").build().is_ok());
}

#[tokio::test]
async fn it_is_listed_while_it_lives() {
    let resilience = over(&ScriptedStore::new());
    let guards = resilience
        .inbound("whole-app")
        .rate_limit(RateLimit::named("shared"))
        .concurrency(ConcurrencyConfig::new(7));
    let app = app(guards.build().expect("valid"));
    let listed = || {
        let policies = resilience.policies();
        policies.into_iter().find(|policy| policy.handler() == "whole-app")
    };
    let shown = listed().expect("it is there").to_string();
    assert!(shown.contains("rate_limit shared 100 in 60s by ip"), "{shown}");
    assert!(shown.contains("concurrency 7"), "{shown}");
    let limits = resilience.concurrency_limits();
    assert!(limits.iter().any(|limit| limit.name() == "inbound::whole-app"));
    assert!(
        resilience
            .limits()
            .list()
            .iter()
            .any(|limit| limit.source == Some(LimitSource::Builder))
    );
    drop(app);
    assert!(listed().is_none());
}
