//! SIGTERM and ctrl-c: what is in flight ends well, and the process ends soon.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use resilience_tests::{PATIENCE, Proxy, RedisServer};

use crate::process::{KEY, Service, eventually};

/// A connection over which the test itself speaks HTTP.
fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("sockets have time-outs");
    stream
}

/// Everything that comes until the other side closes.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it closes the connection");
    String::from_utf8(bytes).expect("it speaks HTTP/1")
}

fn read_some(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 4096];
    let read = stream.read(&mut bytes).expect("it answers");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

#[test]
fn both_signals_end_it_well_while_connections_idle() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut service = Service::start(&[]);
        let mut kept_alive = connect(&service);
        kept_alive
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        assert!(read_some(&mut kept_alive).starts_with("HTTP/1.1 200 OK\r\n"));
        let silent = connect(&service);
        // Accepted before this one, which is answered.
        assert_eq!(service.get("/healthz").status, 200);

        let signalled = Instant::now();
        service.signal(signal);
        assert_eq!(rest(kept_alive), "");
        assert_eq!(rest(silent), "");
        assert_eq!(service.exit_status().code(), Some(0), "{signal}");
        // Not for want of patience with them.
        assert!(signalled.elapsed() < Duration::from_secs(5));
        eventually("it says why", || {
            service.log().contains("stopping: requests in flight may finish")
        });
        assert!(TcpStream::connect(service.address()).is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_redis_is_answered() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let answered_while_stopping = async || {
        proxy.heal().await;
        let mut service = Service::start(&[("REDIS_URL", &proxy.url())]);
        eventually("Redis is connected", || {
            service.get("/readyz").json()["degraded"] == false
        });
        redis.cli(&["CONFIG", "RESETSTAT"]);
        // On the way there, and as long on the way back.
        proxy.delay(Duration::from_millis(60)).await;
        let mut request = connect(&service);
        write!(
            request,
            "GET /api/checkout HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\n\r\n"
        )
        .unwrap();
        eventually("Redis has been asked", || {
            redis.cli(&["INFO", "commandstats"]).contains("cmdstat_get")
        });

        service.signal(Signal::SIGTERM);
        let answer = rest(request);
        assert!(
            answer.starts_with("HTTP/1.1 401 ") || answer.starts_with("HTTP/1.1 503 "),
            "{answer}"
        );
        assert!(answer.ends_with('}'), "it is whole: {answer}");
        assert_eq!(service.exit_status().code(), Some(0));
        answer.contains("connection: close\r\n")
    };
    // On a busy machine the signal may come after the answer, which then does not say that it is the connection's last.
    for _ in 0..20 {
        if answered_while_stopping().await {
            return;
        }
    }
    panic!("no request was in flight when the signal came");
}

#[test]
fn a_client_that_never_ends_its_request_does_not_hold_it_up_for_ever() {
    let mut service = Service::start(&[]);
    let mut stalled = connect(&service);
    stalled.write_all(b"GET /healthz HT").unwrap();
    assert_eq!(service.get("/healthz").status, 200);
    service.signal(Signal::SIGTERM);
    assert_eq!(service.exit_status().code(), Some(0));
    assert_eq!(rest(stalled), "");
}
