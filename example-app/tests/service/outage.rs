//! Redis goes, and comes back, under a running service.

use resilience_tests::RedisServer;
use serde_json::json;

use crate::process::{Answer, KEY, Service, eventually, run};

/// A Redis that keeps its contents over a kill, with a key for `user-42`.
fn redis_with_key() -> RedisServer {
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let added = run(&["key", "add", KEY, "user-42"], &[("REDIS_URL", &redis.url())]);
    assert!(added.status.success(), "{added:?}");
    redis
}

fn is_well(answer: &Answer) -> bool {
    answer.status == 200 && !answer.fell_back()
}

fn recovers(service: &Service) {
    eventually("it recovers", || is_well(&service.checkout(KEY)));
    eventually("it says so", || service.get("/readyz").json()["degraded"] == false);
}

/// What the policy above `checkout` decides for an outage.
fn assert_refused_by_outage(answer: &Answer) {
    assert_eq!(
        (answer.status, answer.error().as_str()),
        (503, "auth_unavailable"),
        "{answer:?}"
    );
    assert_eq!(answer.number("retry-after"), 30);
    assert_eq!(answer.header("x-flag-fallback"), Some("checkout"));
    assert_eq!(answer.header("x-ratelimit-fallback"), Some("open"));
    assert_eq!(answer.header("x-ratelimit-limit"), None);
}

#[test]
fn killed_redis_refuses_whom_it_cannot_verify_and_serves_the_others() {
    let mut redis = redis_with_key();
    let service = Service::start(&[("REDIS_URL", &redis.url())]);
    recovers(&service);

    redis.kill();
    for _ in 0..10 {
        assert_refused_by_outage(&service.checkout(KEY));
        let catalog = service.get("/api/catalog");
        assert_eq!(catalog.status, 200);
        assert_eq!(catalog.header("x-flag-fallback"), Some("catalog"));
        assert_eq!(catalog.header("x-ratelimit-fallback"), Some("open"));
    }
    // Without a key it is the caller's fault, outage or not.
    assert_eq!(service.get("/api/checkout").error(), "missing_api_key");
    assert_eq!(service.get("/healthz").status, 200);
    let readyz = service.get("/readyz");
    assert_eq!(readyz.status, 200);
    let ready = readyz.json();
    assert_eq!((&ready["ok"], &ready["degraded"]), (&json!(true), &json!(true)));
    assert_eq!(ready["store"]["reachable"], false);
    assert_ne!(ready["breakers"]["store"], "closed");

    redis.restart();
    recovers(&service);
    for message in [
        "the breaker has opened",
        "connected to Redis again",
        "the breaker has closed",
    ] {
        eventually(message, || service.log().contains(message));
    }
}

#[test]
fn metrics_tell_of_an_outage() {
    let mut redis = redis_with_key();
    let service = Service::start(&[("REDIS_URL", &redis.url())]);
    recovers(&service);
    redis.kill();
    for _ in 0..5 {
        service.checkout(KEY);
    }
    let metrics = service.get("/metrics").body;
    let value = |line_start: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(line_start));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("{line_start}:\n{metrics}"))
    };
    let answers = |guard: &str, answer: &str| {
        let handler = "example_app::routes::checkout";
        value(&format!(
            "resilience_guard_answers_total{{handler=\"{handler}\",guard=\"{guard}\",answer=\"{answer}\"}}"
        ))
    };
    assert!(answers("auth", "unavailable") >= 5.0);
    assert!(answers("flag:checkout", "fallback_default") >= 5.0);
    let limiter = "rate_limit:example_app::routes::checkout:30:60000ms:sliding:ip";
    assert!(answers(limiter, "fallback_open") >= 5.0);
    // Open, or half-open for a moment.
    assert!(value("resilience_breaker_state{breaker=\"store\"}") > 0.0);
    assert!(value("resilience_store_seconds_count{operation=\"auth\"}") >= 1.0);
    eventually("transitions are counted", || {
        let opened = "resilience_breaker_transitions_total{breaker=\"store\",from=\"closed\",to=\"open\"}";
        service
            .get("/metrics")
            .body
            .lines()
            .any(|line| line.starts_with(opened))
    });
}

#[test]
fn booted_without_redis_it_serves_degraded_and_recovers() {
    let mut redis = redis_with_key();
    redis.kill();
    let service = Service::start(&[("REDIS_URL", &redis.url())]);
    assert_eq!(service.get("/healthz").status, 200);
    assert_refused_by_outage(&service.checkout(KEY));
    let readyz = service.get("/readyz");
    assert_eq!((readyz.status, &readyz.json()["degraded"]), (200, &json!(true)));
    eventually("it warns", || {
        service.log().contains("Redis is unreachable: serving degraded")
    });
    assert_eq!(service.get("/api/catalog").status, 200);

    redis.restart();
    recovers(&service);
}

#[test]
fn frozen_redis_is_answered_for_and_thawed_it_serves_again() {
    let redis = redis_with_key();
    let service = Service::start(&[("REDIS_URL", &redis.url())]);
    recovers(&service);
    redis.freeze();
    for _ in 0..5 {
        assert_refused_by_outage(&service.checkout(KEY));
        assert_eq!(service.get("/api/catalog").status, 200);
    }
    assert_eq!(service.get("/readyz").json()["degraded"], true);
    redis.thaw();
    recovers(&service);
}

#[test]
fn with_a_breaker_per_operation_a_full_redis_costs_the_limits_alone() {
    let redis = redis_with_key();
    let service = Service::start(&[("REDIS_URL", &redis.url()), ("BREAKERS", "per_operation")]);
    recovers(&service);
    let closed = json!({ "auth": "closed", "flag": "closed", "lockout": "closed", "rate_limit": "closed" });
    assert_eq!(service.get("/readyz").json()["breakers"], closed);

    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("the limiter's breaker opens", || {
        let answer = service.checkout(KEY);
        assert!(
            is_well(&answer) || answer.header("x-ratelimit-fallback") == Some("open"),
            "{answer:?}"
        );
        service.get("/readyz").json()["breakers"]["rate_limit"] == "open"
    });
    eventually("keys and flags are read all the while", || {
        let answer = service.checkout(KEY);
        answer.status == 200 && answer.header("x-flag-fallback").is_none()
    });
    let ready = service.get("/readyz").json();
    assert_eq!(ready["degraded"], true);
    assert_eq!(
        (&ready["breakers"]["auth"], &ready["breakers"]["flag"]),
        (&json!("closed"), &json!("closed"))
    );

    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&service);
}
