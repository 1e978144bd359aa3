//! What the service answers.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use poem::{
    Endpoint, EndpointExt, Response, Route, get, handler,
    http::StatusCode,
    post,
    web::{Data, Json, Query},
};
use resilience::{Error, Identity, Resilience, resilient, sharing::admin::BreakerAdmin};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    payments::{self, Knobs, Payments},
    users,
};

/// All routes, guarded.
///
/// `knobs` are those of the payments stub, if this process serves it; `admin` is what operators of shared breakers ask.
pub(crate) fn app(
    resilience: Resilience,
    metrics: PrometheusHandle,
    payments: Payments,
    knobs: Option<Knobs>,
    admin: Option<BreakerAdmin>,
) -> impl Endpoint<Output = Response> + 'static {
    let mut routes = Route::new();
    if let Some(knobs) = knobs {
        routes = routes
            .at("/demo/quote", payments::answers(knobs.clone()))
            .at("/demo/payments", payments::demo(knobs));
    }
    if let Some(admin) = admin {
        routes = routes.nest("/admin/breakers", admin);
    }
    routes
        .at("/healthz", get(healthz))
        .at("/readyz", get(readyz))
        .at("/metrics", get(metrics_text.data(metrics)))
        .at("/api/checkout", get(checkout))
        .at("/api/catalog", get(catalog))
        .at("/api/search", get(search))
        .at("/api/report", get(report))
        .at("/api/quote", get(quote.data(payments)))
        .at("/login", post(login))
        .with(resilience)
}

const ITEMS: [&str; 2] = ["book", "lamp"];

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

#[derive(Deserialize)]
struct Credentials {
    username: String,
    password: String,
}

/// Verified callers only, while nobody has switched it off, 30 times a minute.
#[resilient(auth = "fail_closed", flag("checkout", default = false), rate_limit(30, 60))]
#[handler]
async fn checkout(Identity(user): Identity) -> Json<Value> {
    Json(json!({ "ok": true, "user": user }))
}

/// Open to everybody: it goes on serving whatever happens to Redis.
///
/// Its quota has a name, so that it can be changed while the service runs: `example-app limits set catalog 10 1m`.
#[resilient(
    rate_limit(100, 60, name = "catalog"),
    flag("catalog", default = false, stale = "5m"),
    deadline = "2s"
)]
#[handler]
async fn catalog() -> Json<Value> {
    Json(json!({ "ok": true, "items": ITEMS }))
}

/// Ten a second from one address, a thousand an hour for one user; the second goes on by this process's own count while
/// Redis is away.
#[resilient(
    auth = "fail_closed",
    rate_limit(10, 1),
    rate_limit(1000, "1h", key = user, on_outage = "fail_local")
)]
#[handler]
async fn search(Query(search): Query<Search>) -> Json<Value> {
    let found: Vec<_> = ITEMS.into_iter().filter(|item| item.contains(&search.q)).collect();
    Json(json!({ "ok": true, "found": found }))
}

#[derive(Deserialize)]
struct Report {
    /// How long the report takes, in milliseconds.
    #[serde(default)]
    ms: u64,
}

/// Eight at a time, eight more may wait for 100 ms, and everybody else is told at once to come back. Who waits is served by
/// priority, which `x-priority` says.
#[resilient(concurrency(8, queue = 8, queue_timeout = "100ms"), deadline = "2s")]
#[handler]
async fn report(Query(report): Query<Report>) -> Json<Value> {
    tokio::time::sleep(Duration::from_millis(report.ms)).await;
    Json(json!({ "ok": true, "ms": report.ms }))
}

/// A price from the payments service. While that is down the answer is instant; while it is slow, it comes in half a second.
#[resilient(deadline = "2s")]
#[handler]
async fn quote(Data(payments): Data<&Payments>) -> Result<Json<Value>, Error> {
    Ok(Json(json!({ "quote": payments.quote().await? })))
}

/// Five wrong passwords lock an account for 15 minutes, and twenty an address: one address cannot lock out everybody, and
/// many addresses together cannot guess one password.
#[resilient(
    lockout(5, "15m", key = account("json:/username")),
    lockout(20, "15m", key = ip),
    deadline = "5s"
)]
#[handler]
async fn login(Json(Credentials { username, password }): Json<Credentials>) -> Result<Json<Value>, Error> {
    if users::verify(&username, password).await? {
        Ok(Json(json!({ "ok": true, "user": username })))
    } else {
        let message = "No user has this name and this password.";
        Err(Error::new(StatusCode::UNAUTHORIZED, "invalid_credentials", message))
    }
}

/// The process is alive. Asks nobody.
#[handler]
fn healthz() -> Json<Value> {
    Json(json!({ "ok": true }))
}

/// Ready in an outage too: degraded service is service. What is degraded, it says.
#[handler]
async fn readyz(resilience: Resilience) -> Json<Value> {
    let health = resilience.health().await;
    let breakers: serde_json::Map<_, _> = health
        .breakers
        .iter()
        .map(|(name, state)| (name.clone(), json!(state.as_str())))
        .collect();
    let policies: serde_json::Map<_, _> = resilience
        .concurrency_limits()
        .iter()
        .map(|limit| {
            let handler = limit.name().trim_start_matches("example_app::routes::").to_owned();
            let slots = json!({ "in_flight": limit.in_flight(), "queued": limit.queued(), "limit": limit.limit() });
            (handler, slots)
        })
        .collect();
    let mut ready = json!({
        "ok": true,
        "degraded": health.is_degraded(),
        "store": { "reachable": health.store_reachable },
        "breakers": breakers,
        "unreadable_flags": health.unreadable_flags,
        "policies": policies,
    });
    if resilience.shared_breakers().is_some() {
        // As calls find them in this process.
        let shared = resilience.dependencies().all().into_iter();
        let shared: serde_json::Map<_, _> = shared
            .map(|breaker| (breaker.name().to_owned(), json!(breaker.state().as_str())))
            .collect();
        ready["shared_breakers"] = shared.into();
    }
    Json(ready)
}

/// Counts and latencies for Prometheus.
#[handler]
fn metrics_text(resilience: Resilience, Data(metrics): Data<&PrometheusHandle>) -> String {
    resilience.publish_metrics();
    metrics.run_upkeep();
    metrics.render()
}
