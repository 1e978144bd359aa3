//! Two instances with one breaker in front of one payments service.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use resilience_tests::RedisServer;
use serde_json::{Value, json};

use crate::process::{Service, eventually, succeed};

const SYSTEM: (&str, &str) = ("SHARE_BREAKERS", "payments-team");

/// Two instances; the second one's payments service is the first one's stub.
fn two(redis: &RedisServer) -> [Service; 2] {
    let url = redis.url();
    let first = Service::start(&[("REDIS_URL", &url), SYSTEM]);
    let stub = format!("http://{}/demo", first.address());
    let second = Service::start(&[("REDIS_URL", &url), SYSTEM, ("PAYMENTS_URL", &stub)]);
    [first, second]
}

fn turn(first: &Service, latency_ms: u64, fail: bool) {
    let knobs = json!({ "latency_ms": latency_ms, "fail": fail });
    assert_eq!(first.post("/demo/payments", &knobs.to_string()).status, 200);
}

/// What the stub has counted.
fn counted(first: &Service, what: &str) -> u64 {
    first.get("/demo/payments").json()[what].as_u64().expect("a number")
}

/// How this instance's calls find the breaker.
fn state(service: &Service) -> Value {
    service.get("/readyz").json()["shared_breakers"]["payments"].clone()
}

/// Calls until the circuit is open, on this instance alone.
fn break_it(service: &Service) {
    eventually("it opens", || service.get("/api/quote").error() == "circuit_open");
}

#[test]
fn one_breaks_both_refuse_and_one_probe_heals_both() {
    let redis = RedisServer::start();
    let services = two(&redis);
    let [first, second] = &services;
    for service in &services {
        assert_eq!(service.get("/api/quote").status, 200);
    }
    turn(first, 0, true);
    break_it(first);
    let calls = counted(first, "calls");
    eventually("the other knows", || state(second) == "open");
    let refused = second.get("/api/quote");
    assert_eq!((refused.status, &*refused.error()), (503, "circuit_open"));
    assert!((1..=5).contains(&refused.number("retry-after")), "{refused:?}");
    assert_eq!(counted(first, "calls"), calls, "it was not asked");

    turn(first, 0, false);
    // Only the second asks, once at a time: the first of its calls that gets through is the probe.
    eventually("it recovers", || second.get("/api/quote").status == 200);
    eventually("both are closed", || {
        services.iter().all(|service| state(service) == "closed")
    });
    assert_eq!(counted(first, "calls"), calls + 1, "one probe between them");
    for service in &services {
        assert_eq!(service.get("/api/quote").status, 200);
    }
}

#[test]
fn however_many_ask_one_probe_is_out_at_a_time() {
    let redis = RedisServer::start();
    let services = two(&redis);
    let [first, second] = &services;
    turn(first, 0, true);
    break_it(first);
    eventually("the other knows", || state(second) == "open");
    // Probes overlap if there are two: each takes long, and fails, so that the circuit stays open.
    turn(first, 300, true);
    let calls = counted(first, "calls");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for service in services.iter().cycle().take(6) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    service.get("/api/quote");
                }
            });
        }
        eventually("two probes have failed", || counted(first, "calls") >= calls + 2);
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(counted(first, "most_at_once"), 1);
}

#[test]
fn a_prober_that_is_killed_is_followed_by_one_of_the_two_that_are_left() {
    let redis = RedisServer::start();
    let url = redis.url();
    let [first, second] = two(&redis);
    let stub = format!("http://{}/demo", first.address());
    let third = Service::start(&[("REDIS_URL", &url), SYSTEM, ("PAYMENTS_URL", &stub)]);
    turn(&first, 0, true);
    break_it(&first);
    for service in [&second, &third] {
        eventually("all know", || state(service) == "open");
    }
    // Long enough to be killed in the midst of it, and within the call's own half second.
    turn(&first, 450, false);
    let calls = counted(&first, "calls");
    let address = second.address().to_owned();
    let caller = thread::spawn(move || {
        // Ends when the process does.
        while ureq::get(format!("http://{address}/healthz")).call().is_ok() {
            _ = ureq::get(format!("http://{address}/api/quote")).call();
        }
    });
    eventually("the second probes", || counted(&first, "calls") > calls);
    // As by `kill -9`.
    drop(second);
    caller.join().expect("no panic");

    eventually("the third recovers", || third.get("/api/quote").status == 200);
    for service in [&first, &third] {
        eventually("all are closed", || state(service) == "closed");
    }
    assert_eq!(counted(&first, "most_at_once"), 1);
}

#[test]
fn an_order_reaches_both_and_is_kept_over_a_restart() {
    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", &*url), SYSTEM];
    let services = two(&redis);
    succeed(&["breakers", "open", "payments", "--reason", "they deploy"], &settings);
    for service in &services {
        eventually("it is held open", || {
            service.get("/api/quote").error() == "circuit_open"
        });
    }
    let restarted = Service::start(&settings);
    eventually("a new instance adopts it", || {
        restarted.get("/api/quote").error() == "circuit_open"
    });

    succeed(
        &["breakers", "close", "payments", "--reason", "a false alarm"],
        &settings,
    );
    turn(&services[0], 0, true);
    for service in &services {
        eventually("it is held closed", || {
            service.get("/api/quote").error() == "bad_gateway"
        });
        for _ in 0..4 {
            assert_eq!(
                service.get("/api/quote").error(),
                "bad_gateway",
                "failures open nothing"
            );
        }
    }

    turn(&services[0], 0, false);
    assert_eq!(
        succeed(&["breakers", "release", "payments"], &settings),
        "payments goes by its own rules\n"
    );
    for service in services.iter().chain([&restarted]) {
        eventually("it is let go of", || service.get("/api/quote").status == 200);
    }
}
