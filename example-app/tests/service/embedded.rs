//! With no settings at all: the embedded store.

use serde_json::json;

use crate::process::{KEY, Service};

#[test]
fn it_lives_and_is_ready() {
    let service = Service::start(&[]);
    let healthz = service.get("/healthz");
    assert_eq!((healthz.status, healthz.json()), (200, json!({ "ok": true })));
    let readyz = service.get("/readyz");
    let ready = json!({
        "ok": true,
        "degraded": false,
        "store": { "reachable": true },
        "breakers": { "store": "closed" },
        "unreadable_flags": [],
        "policies": { "report": { "in_flight": 0, "queued": 0, "limit": 8 } },
    });
    assert_eq!((readyz.status, readyz.json()), (200, ready));
}

#[test]
fn callers_are_told_apart() {
    let service = Service::start(&[]);
    let right = service.checkout(KEY);
    assert_eq!(
        (right.status, right.json()),
        (200, json!({ "ok": true, "user": "user-42" }))
    );
    assert_eq!(right.number("x-ratelimit-limit"), 30);
    assert_eq!(right.number("x-ratelimit-remaining"), 29);
    assert!(!right.fell_back());

    let none = service.get("/api/checkout");
    assert_eq!((none.status, none.error().as_str()), (401, "missing_api_key"));
    let empty = service.checkout("");
    assert_eq!((empty.status, empty.error().as_str()), (401, "missing_api_key"));
    for wrong in ["letmeout", &"x".repeat(513)] {
        let wrong = service.checkout(wrong);
        assert_eq!((wrong.status, wrong.error().as_str()), (401, "invalid_api_key"));
        assert!(wrong.header("www-authenticate").is_some());
    }
}

#[test]
fn the_thirty_first_request_of_a_minute_has_to_wait() {
    // The embedded store counts its minutes from its start.
    let service = Service::start(&[]);
    for remaining in (0..30).rev() {
        let answer = service.checkout(KEY);
        assert_eq!(
            (answer.status, answer.number("x-ratelimit-remaining")),
            (200, remaining)
        );
    }
    let over = service.checkout(KEY);
    assert_eq!((over.status, over.error().as_str()), (429, "rate_limited"));
    assert!((1..=120).contains(&over.number("retry-after")), "{over:?}");
    assert_eq!(over.number("x-ratelimit-remaining"), 0);
    assert_eq!(over.header("ratelimit-policy"), Some("\"default\";q=30;w=60"));
    let wait = over.number("retry-after");
    assert_eq!(
        over.header("ratelimit"),
        Some(format!("\"default\";r=0;t={wait}").as_str())
    );
    // Another handler has a quota of its own.
    assert_eq!(service.get("/api/catalog").status, 200);
}

#[test]
fn metrics_count_what_guards_answered() {
    let service = Service::start(&[]);
    service.get("/api/checkout");
    service.checkout(KEY);
    let metrics = service.get("/metrics");
    assert_eq!(metrics.status, 200);
    let handler = "handler=\"example_app::routes::checkout\"";
    for line in [
        format!("resilience_guard_answers_total{{{handler},guard=\"auth\",answer=\"rejected\"}} 1"),
        format!("resilience_guard_answers_total{{{handler},guard=\"auth\",answer=\"passed\"}} 1"),
        format!("resilience_guard_answers_total{{{handler},guard=\"flag:checkout\",answer=\"passed\"}} 2"),
        "resilience_breaker_state{breaker=\"store\"} 0".to_owned(),
    ] {
        assert!(
            metrics.body.lines().any(|printed| printed == line),
            "{line}:\n{}",
            metrics.body
        );
    }
}
