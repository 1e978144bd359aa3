//! Reports: how many at once, who waits, who is shed, and what becomes of those whose client has gone.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use resilience_tests::PATIENCE;
use serde_json::json;

use crate::process::{Service, eventually};

/// In flight, and queued, as `/readyz` says it.
fn slots(service: &Service) -> (u64, u64) {
    let ready = service.get("/readyz").json();
    let count = |what: &str| ready["policies"]["report"][what].as_u64().expect("a count");
    (count("in_flight"), count("queued"))
}

/// A connection that has asked for a report of so many milliseconds, and has not read.
fn ask(service: &Service, ms: u64, priority: &str) -> TcpStream {
    let mut connection = TcpStream::connect(service.address()).expect("it listens");
    connection.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = service.address();
    let request = format!("GET /api/report?ms={ms} HTTP/1.1\r\nhost: {address}\r\nx-priority: {priority}\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("it takes it");
    connection
}

/// The status of the answer, once it comes.
fn status(mut connection: TcpStream) -> u16 {
    let mut line = [0; 12];
    connection.read_exact(&mut line).expect("it answers");
    let line = std::str::from_utf8(&line).expect("a status line");
    line[9..].parse().expect("a status")
}

#[test]
fn a_report_takes_its_time_within_two_seconds() {
    let service = Service::start(&[]);
    let answer = service.get("/api/report?ms=1");
    assert_eq!((answer.status, answer.json()), (200, json!({ "ok": true, "ms": 1 })));
    let late = service.get("/api/report?ms=60000");
    assert_eq!((late.status, late.error().as_str()), (504, "timeout"));
    assert_eq!(slots(&service), (0, 0));
}

#[test]
fn eight_run_and_who_finds_no_place_is_shed() {
    let service = Service::start(&[]);
    let asked: Vec<_> = (0..40).map(|_| ask(&service, 1_000, "default")).collect();
    eventually("all slots are taken", || slots(&service).0 == 8);
    let shed = service.get("/api/report?ms=1000");
    let statuses: Vec<_> = asked.into_iter().map(status).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!(served >= 8 && refused >= 8 && served + refused == 40, "{statuses:?}");
    if shed.status != 200 {
        assert_eq!((shed.status, shed.error().as_str()), (503, "overloaded"));
        assert_eq!(shed.number("retry-after"), 1);
    }
    eventually("all slots are free", || slots(&service) == (0, 0));
}

#[test]
fn a_client_that_hangs_up_frees_its_slot() {
    let service = Service::start(&[]);
    let running: Vec<_> = (0..8).map(|_| ask(&service, 1_900, "default")).collect();
    eventually("all slots are taken", || slots(&service) == (8, 0));
    let began = Instant::now();
    drop(running);
    eventually("all slots are free", || slots(&service) == (0, 0));
    // Not because the reports were done.
    assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
}

#[test]
fn metrics_tell_of_slots_and_of_who_was_shed() {
    let service = Service::start(&[]);
    let running: Vec<_> = (0..16).map(|_| ask(&service, 300, "default")).collect();
    let statuses: Vec<_> = running.into_iter().map(status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    let text = service.get("/metrics").body;
    let handler = r#"handler="example_app::routes::report""#;
    for metric in [
        format!("resilience_concurrency_limit{{{handler}}} 8"),
        format!("resilience_concurrency_in_flight{{{handler}}} 0"),
        format!(r#"resilience_concurrency_shed_total{{{handler},reason="queue_timeout"}}"#),
    ] {
        assert!(text.contains(&metric), "{metric} in {text}");
    }
}
