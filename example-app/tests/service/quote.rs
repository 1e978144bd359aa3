//! Quotes from the payments service: well, failing, slow, gone and back.

use serde_json::json;

use crate::process::{Service, eventually};

/// Turns the stub's knobs.
fn turn(service: &Service, latency_ms: u64, fail: bool) {
    let knobs = json!({ "latency_ms": latency_ms, "fail": fail });
    let turned = service.post("/demo/payments", &knobs.to_string());
    assert_eq!((turned.status, turned.json()), (200, knobs));
}

#[test]
fn a_quote_comes_from_the_stub() {
    let service = Service::start(&[]);
    let quote = service.get("/api/quote");
    let expected = json!({ "quote": { "amount": 4200, "currency": "EUR" } });
    assert_eq!((quote.status, quote.json()), (200, expected));
}

#[test]
fn failures_open_the_circuit_and_it_closes_when_the_service_is_well() {
    let service = Service::start(&[]);
    turn(&service, 0, true);
    // Three attempts a call: the second call meets the fifth failure.
    let failed = service.get("/api/quote");
    assert_eq!((failed.status, failed.error().as_str()), (502, "bad_gateway"));
    service.get("/api/quote");
    let open = service.get("/api/quote");
    assert_eq!((open.status, open.error().as_str()), (503, "circuit_open"));
    assert!((1..=5).contains(&open.number("retry-after")), "{open:?}");

    turn(&service, 0, false);
    // After five seconds one call is let through to try.
    eventually("it recovers", || service.get("/api/quote").status == 200);
}

#[test]
fn a_slow_service_is_not_waited_for() {
    let service = Service::start(&[]);
    turn(&service, 60_000, false);
    let late = service.get("/api/quote");
    assert_eq!((late.status, late.error().as_str()), (504, "timeout"));
    for _ in 0..4 {
        service.get("/api/quote");
    }
    let open = service.get("/api/quote");
    assert_eq!(
        (open.status, open.error().as_str()),
        (503, "circuit_open"),
        "a hang is a failure"
    );
}

#[test]
fn a_service_that_is_not_there_is_no_quote() {
    // Bound, and closed again: nobody listens there now.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = format!("http://{}", socket.local_addr().expect("it has one"));
    drop(socket);
    let service = Service::start(&[("PAYMENTS_URL", &nowhere)]);
    let failed = service.get("/api/quote");
    assert_eq!((failed.status, failed.error().as_str()), (502, "bad_gateway"));
    assert_eq!(
        service.post("/demo/payments", "{}").status,
        404,
        "there is no stub to turn"
    );
}

#[test]
fn another_service_can_stand_in() {
    let payments = Service::start(&[]);
    // Another example answers at `/quote` with a 404, which says nothing about how it is.
    let service = Service::start(&[("PAYMENTS_URL", &format!("http://{}", payments.address()))]);
    for _ in 0..6 {
        let failed = service.get("/api/quote");
        assert_eq!((failed.status, failed.error().as_str()), (502, "bad_gateway"));
    }
}
