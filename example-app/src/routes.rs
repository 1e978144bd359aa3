//! What the service answers.

use metrics_exporter_prometheus::PrometheusHandle;
use poem::{
    Endpoint, EndpointExt, Response, Route, get, handler,
    web::{Data, Json},
};
use resilience::{Identity, Resilience, resilient};
use serde_json::{Value, json};

/// All routes, guarded.
pub(crate) fn app(resilience: Resilience, metrics: PrometheusHandle) -> impl Endpoint<Output = Response> + 'static {
    Route::new()
        .at("/healthz", get(healthz))
        .at("/readyz", get(readyz))
        .at("/metrics", get(metrics_text.data(metrics)))
        .at("/api/checkout", get(checkout))
        .at("/api/catalog", get(catalog))
        .with(resilience)
}

/// Verified callers only, while nobody has switched it off, 30 times a minute.
#[resilient(auth = "fail_closed", flag("checkout", default = false), rate_limit(30, 60))]
#[handler]
async fn checkout(Identity(user): Identity) -> Json<Value> {
    Json(json!({ "ok": true, "user": user }))
}

/// Open to everybody: it goes on serving whatever happens to Redis.
#[resilient(rate_limit(100, 60), flag("catalog", default = false, stale = "5m"), deadline = "2s")]
#[handler]
async fn catalog() -> Json<Value> {
    Json(json!({ "ok": true, "items": ["book", "lamp"] }))
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
    Json(json!({
        "ok": true,
        "degraded": health.is_degraded(),
        "store": { "reachable": health.store_reachable },
        "breakers": breakers,
    }))
}

/// Counts and latencies for Prometheus.
#[handler]
fn metrics_text(resilience: Resilience, Data(metrics): Data<&PrometheusHandle>) -> String {
    resilience.publish_metrics();
    metrics.run_upkeep();
    metrics.render()
}
