//! What an operator does from the shell, and what a running service makes of it.

use resilience_tests::RedisServer;
use serde_json::json;

use crate::process::{Answer, KEY, Service, eventually, run, succeed};

/// Asks until the store has answered in time: a busy machine may be late, which is not what these tests ask about.
fn checkout(service: &Service) -> Answer {
    let mut answer = service.checkout(KEY);
    eventually("the store answers in time", || {
        let answered = !answer.fell_back() && answer.error() != "auth_unavailable";
        if !answered {
            answer = service.checkout(KEY);
        }
        answered
    });
    answer
}

#[test]
fn keys_let_in_and_turn_away_at_once() {
    for (layout, stored_as) in [
        (
            "sha256",
            "apikey-sha256:1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032",
        ),
        ("plain", "apikey:letmein"),
    ] {
        let redis = RedisServer::start();
        let url = redis.url();
        let settings = [("REDIS_URL", url.as_str()), ("API_KEYS", layout)];
        let service = Service::start(&settings);
        assert_eq!(checkout(&service).error(), "invalid_api_key");

        assert_eq!(
            succeed(&["key", "add", KEY, "user-42"], &settings),
            "the key stands for user-42\n"
        );
        assert_eq!(redis.cli(&["GET", stored_as]), "user-42");
        assert_eq!(redis.cli(&["TTL", stored_as]), "-1");
        let answer = checkout(&service);
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({ "ok": true, "user": "user-42" }))
        );

        assert_eq!(succeed(&["key", "remove", KEY], &settings), "the key is gone\n");
        assert_eq!(checkout(&service).error(), "invalid_api_key");
        assert_eq!(succeed(&["key", "remove", KEY], &settings), "there was no such key\n");
    }
}

#[test]
fn keys_in_plain_are_those_that_others_have_written() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "apikey:letmein", "user-42"]);
    let service = Service::start(&[("REDIS_URL", &redis.url()), ("API_KEYS", "plain")]);
    assert_eq!(checkout(&service).status, 200);
    // The other layout reads nothing of it.
    let hashing = Service::start(&[("REDIS_URL", &redis.url())]);
    assert_eq!(checkout(&hashing).error(), "invalid_api_key");
}

#[test]
fn flags_switch_a_feature_off_and_on_at_once() {
    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str())];
    succeed(&["key", "add", KEY, "user-42"], &settings);
    let service = Service::start(&settings);
    assert_eq!(checkout(&service).status, 200);

    assert_eq!(
        succeed(&["flag", "set", "checkout", "on"], &settings),
        "checkout is on\n"
    );
    assert_eq!(redis.cli(&["GET", "flag:checkout"]), "1");
    let blocked = checkout(&service);
    assert_eq!((blocked.status, blocked.error().as_str()), (503, "feature_disabled"));

    assert_eq!(
        succeed(&["flag", "set", "checkout", "off"], &settings),
        "checkout is off\n"
    );
    assert_eq!(checkout(&service).status, 200);
    assert_eq!(
        succeed(&["flag", "clear", "checkout"], &settings),
        "checkout is no longer set\n"
    );
    assert_eq!(redis.cli(&["EXISTS", "flag:checkout"]), "0");
    assert_eq!(checkout(&service).status, 200);
    assert_eq!(
        succeed(&["flag", "clear", "checkout"], &settings),
        "checkout was not set\n"
    );
}

#[test]
fn a_flag_that_cannot_be_read_shows_in_readiness() {
    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str())];
    succeed(&["key", "add", KEY, "user-42"], &settings);
    redis.cli(&["SET", "flag:checkout", "maybe"]);
    let service = Service::start(&settings);
    eventually("readiness names the flag", || {
        service.checkout(KEY);
        service.get("/readyz").json()["unreadable_flags"] == json!(["checkout"])
    });
    assert_eq!(service.get("/readyz").json()["degraded"], true);
    let log = service.log();
    assert!(log.contains("maybe") && log.contains("a flag is unreadable"), "{log}");

    succeed(&["flag", "set", "checkout", "off"], &settings);
    assert_eq!(checkout(&service).status, 200);
    assert_eq!(service.get("/readyz").json()["unreadable_flags"], json!([]));
}

#[test]
fn a_limit_is_shared_by_all_instances() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", redis.url())];
    let settings = settings.each_ref().map(|(name, url)| (*name, url.as_str()));
    succeed(&["key", "add", KEY, "user-42"], &settings);
    let services = [Service::start(&settings), Service::start(&settings)];
    let mut passed = 0;
    let refused = loop {
        let answer = checkout(&services[passed % 2]);
        if answer.status != 200 {
            break answer;
        }
        passed += 1;
        // A minute that begins meanwhile lets a few more pass, and no more than as many again.
        assert!(passed <= 60, "no limit holds");
    };
    assert_eq!((refused.status, refused.error().as_str()), (429, "rate_limited"));
    assert!((1..=120).contains(&refused.number("retry-after")));
    assert_eq!(refused.number("x-ratelimit-remaining"), 0);
}

#[test]
fn commands_that_cannot_reach_redis_say_so() {
    let redis = RedisServer::prepare(&[]);
    let output = run(&["flag", "set", "checkout", "on"], &[("REDIS_URL", &redis.url())]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(&format!("no connection to Redis at 127.0.0.1:{}", redis.port())),
        "{error}"
    );

    let output = run(&["key", "add", KEY, "user-42"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: REDIS_URL: not set"), "{error}");
}

#[test]
fn arguments_that_make_no_sense_end_with_2() {
    for arguments in [
        &["key"][..],
        &["key", "add", KEY],
        &["flag", "set", "checkout", "maybe"],
        &["serve", "now"],
    ] {
        assert_eq!(run(arguments, &[]).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn policies_print_the_guards_in_the_order_they_run() {
    let printed = succeed(&["policies"], &[]);
    let checkout = printed
        .split("\n\n")
        .find(|policy| policy.starts_with("example_app::routes::checkout\n"));
    let lines: Vec<_> = checkout.expect("the handler is listed").lines().collect();
    for (line, words) in [
        (
            1,
            &[
                "1. rate_limit 30 in 60s by ip",
                "within 80ms",
                "breaker store",
                "in an outage: fail_open",
            ],
        ),
        (
            2,
            &[
                "2. flag checkout blocks when on",
                "within 100ms",
                "breaker store",
                "in an outage: counts as off",
            ],
        ),
        (
            3,
            &[
                "3. auth by x-api-key",
                "within 150ms",
                "breaker store",
                "in an outage: fail_closed",
            ],
        ),
    ] {
        for word in words {
            assert!(lines[line].contains(word), "{word}: {printed}");
        }
    }
    assert_eq!(lines[4].trim(), "handler");

    let per_operation = succeed(&["policies"], &[("BREAKERS", "per_operation")]);
    for breaker in ["breaker rate_limit", "breaker flag", "breaker auth"] {
        assert!(per_operation.contains(breaker), "{per_operation}");
    }
}
