//! Shared breakers from the shell and over HTTP: what an operator orders, and what the store has of it.

use std::time::Duration;

use resilience_tests::RedisServer;
use serde_json::{Value, json};

use crate::process::{Service, eventually, run, succeed};

const TOKEN: &str = "3f1c9a04e7b25d68";
const BEARER: &str = "Bearer 3f1c9a04e7b25d68";

/// What `breakers list --json` prints of one breaker.
fn listed(name: &str, settings: &[(&str, &str)]) -> Value {
    let printed = succeed(&["breakers", "list", "--json"], settings);
    let all: Vec<Value> = serde_json::from_str(&printed).expect("JSON");
    let mut of_that_name = all.into_iter().filter(|status| status["name"] == name);
    let status = of_that_name.next().unwrap_or_else(|| panic!("{name}: {printed}"));
    assert_eq!(of_that_name.next(), None, "each name stands once");
    status
}

#[test]
fn a_breaker_that_nobody_has_told_of_is_listed_as_closed() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url()), ("SHARE_BREAKERS", "payments-team")];
    assert_eq!(succeed(&["breakers", "list"], &settings), "payments: closed\n");
    let expected = json!({
        "name": "payments", "state": "closed", "since": null, "reason": null, "by": null, "probe_in_ms": null,
        "override": null
    });
    assert_eq!(listed("payments", &settings), expected);
    // Whoever only looks leaves nothing behind.
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn orders_are_given_shown_and_taken_back() {
    let redis = RedisServer::start();
    let settings = [
        ("REDIS_URL", &*redis.url()),
        ("SHARE_BREAKERS", "payments-team"),
        ("USER", "grace"),
    ];
    for (order, state) in [("open", "open"), ("close", "closed")] {
        let arguments = [
            "breakers",
            order,
            "payments",
            "--reason",
            "they deploy",
            "--author",
            "ada",
            "--for",
            "10m",
        ];
        assert_eq!(succeed(&arguments, &settings), format!("payments is held {state}\n"));
        let status = listed("payments", &settings);
        assert_eq!(
            (&status["state"], &status["reason"]),
            (&json!(state), &json!("they deploy"))
        );
        assert!(status["since"].is_string(), "{status}");
        let held = &status["override"];
        assert_eq!(
            (&held["state"], &held["reason"], &held["author"]),
            (&json!(state), &json!("they deploy"), &json!("ada"))
        );
        let ends_in = Duration::from_millis(held["ends_in_ms"].as_u64().expect("it ends"));
        assert!(ends_in <= Duration::from_secs(600), "{status}");
        let printed = succeed(&["breakers", "list"], &settings);
        assert!(printed.starts_with(&format!("payments: {state} since 2")), "{printed}");
        assert!(printed.contains(", held by ada: \"they deploy\", for "), "{printed}");
    }

    // Who says so is whoever is logged in, and it stands until it is released.
    succeed(
        &["breakers", "open", "search", "--reason", "a\u{1b}[31m test"],
        &settings,
    );
    let status = listed("search", &settings);
    assert_eq!(
        (&status["by"], &status["override"]["ends_in_ms"]),
        (&json!("grace"), &Value::Null)
    );
    let printed = succeed(&["breakers", "list"], &settings);
    assert!(printed.contains("held by grace: \"a\\u{1b}[31m test\""), "{printed:?}");

    let nobody = [settings[0], settings[1]];
    succeed(&["breakers", "open", "search", "--reason", "a test"], &nobody);
    assert_eq!(listed("search", &settings)["by"], "operator");

    // Another system has breakers of its own.
    let others = [settings[0], ("SHARE_BREAKERS", "search-team")];
    assert_eq!(succeed(&["breakers", "list"], &others), "payments: closed\n");

    for printed in ["payments goes by its own rules\n", "payments was not held\n"] {
        assert_eq!(succeed(&["breakers", "release", "payments"], &settings), printed);
    }
    assert_eq!(listed("payments", &settings)["override"], Value::Null);
}

#[test]
fn an_order_ends_by_itself() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url()), ("SHARE_BREAKERS", "payments-team")];
    let order = ["breakers", "open", "payments", "--reason", "a test", "--for", "200ms"];
    succeed(&order, &settings);
    eventually("it ends", || listed("payments", &settings)["state"] == "closed");
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url()), ("SHARE_BREAKERS", "payments-team")];
    for arguments in [
        &["breakers"][..],
        &["breakers", "open", "payments"],
        &["breakers", "open", "payments", "--reason", ""],
        &["breakers", "open", "payments", "--reason", "r", "--for", "10"],
        &["breakers", "close", "--reason", "r"],
        &["breakers", "release"],
    ] {
        assert_eq!(run(arguments, &settings).status.code(), Some(2), "{arguments:?}");
    }
    let long = "x".repeat(129);
    for arguments in [
        ["breakers", "open", &long, "--reason", "r", "--author", "ada"],
        ["breakers", "open", "", "--reason", "r", "--author", "ada"],
        ["breakers", "open", "payments", "--reason", "r", "--author", &long],
        [
            "breakers",
            "open",
            "payments",
            "--author",
            "ada",
            "--reason",
            &"r".repeat(513),
        ],
    ] {
        let output = run(&arguments, &settings);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("bytes"), "{output:?}");
    }
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn settings_that_do_not_go_together_are_named() {
    let redis = RedisServer::start();
    let url = redis.url();
    let redis = ("REDIS_URL", url.as_str());
    let system = ("SHARE_BREAKERS", "payments-team");
    let list = &["breakers", "list"][..];
    for (arguments, settings, expected) in [
        (list, &[redis][..], "error: SHARE_BREAKERS: not set"),
        (list, &[system], "error: SHARE_BREAKERS: needs a REDIS_URL"),
        (list, &[redis, ("SHARE_BREAKERS", "a b")], "error: SHARE_BREAKERS: "),
        (&[], &[redis, ("SHARE_BREAKERS", "a b")], "error: SHARE_BREAKERS: "),
        (
            &[],
            &[redis, ("ADMIN_TOKEN", TOKEN)],
            "error: ADMIN_TOKEN: needs SHARE_BREAKERS",
        ),
        (
            &[],
            &[redis, system, ("ADMIN_TOKEN", "too short")],
            "error: ADMIN_TOKEN: ",
        ),
    ] {
        let output = run(arguments, &[&[("PORT", "0")], settings].concat());
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{settings:?}: {error}");
        assert!(error.starts_with(expected), "{settings:?}: {error}");
        assert!(!error.contains("too short"), "a token is shown: {error}");
    }
}

#[test]
fn commands_that_cannot_reach_redis_say_so() {
    let redis = RedisServer::prepare(&[]);
    let settings = [("REDIS_URL", &*redis.url()), ("SHARE_BREAKERS", "payments-team")];
    for arguments in [
        &["breakers", "list"][..],
        &["breakers", "open", "payments", "--reason", "r"],
        &["breakers", "release", "payments"],
    ] {
        let output = run(arguments, &settings);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(1), 0),
            "{arguments:?}"
        );
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("error: the store: "),
            "{output:?}"
        );
    }
}

#[test]
fn operators_with_the_token_order_over_http() {
    let redis = RedisServer::start();
    let settings = [
        ("REDIS_URL", &*redis.url()),
        ("SHARE_BREAKERS", "payments-team"),
        ("ADMIN_TOKEN", TOKEN),
    ];
    let service = Service::start(&settings);
    let path = "/admin/breakers/payments/override";
    let order = r#"{"state":"open","reason":"they deploy","expires_in":"10m"}"#;
    for authorization in ["", "Bearer", "Bearer 3f1c9a04e7b25d69", "Basic 3f1c9a04e7b25d68"] {
        let answer = service.operate("PUT", path, authorization, Some(order));
        assert_eq!((answer.status, &*answer.error()), (401, "not_an_operator"));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(listed("payments", &settings)["override"], Value::Null);

    let answer = service.operate("PUT", path, BEARER, Some(order));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(listed("payments", &settings)["override"]["author"], "admin");
    assert!(
        service.log().contains("they deploy"),
        "orders are logged: {}",
        service.log()
    );
    assert!(!service.log().contains(TOKEN));
    let all = service.operate("GET", "/admin/breakers", BEARER, None);
    let breakers = all.json()["breakers"].as_array().cloned().expect("a list");
    assert!(
        breakers
            .iter()
            .any(|status| status["name"] == "payments" && status["state"] == "open")
    );
    let answer = service.operate("DELETE", path, BEARER, None);
    assert_eq!((answer.status, &answer.json()["released"]), (200, &json!(true)));
    assert_eq!(listed("payments", &settings)["override"], Value::Null);

    let unmounted = Service::start(&settings[..2]);
    assert_eq!(unmounted.operate("GET", "/admin/breakers", BEARER, None).status, 404);
}

#[test]
fn readiness_shows_shared_breakers_if_there_are_any() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url()), ("SHARE_BREAKERS", "payments-team")];
    let ready = Service::start(&settings).get("/readyz").json();
    assert_eq!(ready["shared_breakers"], json!({ "payments": "closed" }));
    let ready = Service::start(&settings[..1]).get("/readyz").json();
    assert_eq!(ready.get("shared_breakers"), None);
}
