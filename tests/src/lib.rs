//! Fixtures: a real Redis that a test starts, stops, kills and freezes, and a proxy in front of it that misbehaves.

mod garbler;
mod proxy;
mod redis_server;

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use poem::{
    Addr, Body, Request,
    http::uri::Scheme,
    web::{LocalAddr, RemoteAddr},
};

pub use self::{garbler::Garble, proxy::Proxy, redis_server::RedisServer};

/// A bound on waits for what must happen: never the time it should take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback port that was free a moment ago, and that this process hands out once.
///
/// Below the range from which the kernel takes the ports of outgoing connections: one of those could stand where a
/// stopped server is to come back, or be a client's that dials the dead port and reaches itself.
///
/// # Panics
///
/// When none is free.
#[must_use]
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static HANDED_OUT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run side by side begin at different places.
    let begin = std::process::id().wrapping_mul(997) % u32::from(COUNT);
    for _ in 0..COUNT {
        let nth = u32::from(HANDED_OUT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((begin + nth) % u32::from(COUNT)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no loopback port is free");
}

/// Waits until `condition` holds, looking every few milliseconds.
///
/// # Panics
///
/// When it does not within [`PATIENCE`].
pub async fn eventually<F: AsyncFnMut() -> bool>(what: &str, mut condition: F) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, holds)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
}

/// A request over a connection from this peer, with these headers; one that stands twice has two values.
///
/// # Panics
///
/// When a header's name or value is none.
#[must_use]
pub fn request_from(peer: impl Into<Addr>, headers: &[(&'static str, &str)]) -> Request {
    let (parts, ()) = poem::http::Request::new(()).into_parts();
    let parts = (parts, LocalAddr::default(), RemoteAddr(peer.into()), Scheme::HTTP);
    let mut request = Request::from_parts(parts.into(), Body::empty());
    for (name, value) in headers {
        let value = value.parse().expect("a header value");
        request.headers_mut().append(*name, value);
    }
    request
}

/// The examples in the README and in the book, compiled and run as they stand there.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/src/guide.md")]
    mod guide {}
    #[doc = include_str!("../../docs/src/guards.md")]
    mod guards {}
    #[doc = include_str!("../../docs/src/guards/auth.md")]
    mod auth {}
    #[doc = include_str!("../../docs/src/guards/flag.md")]
    mod flag {}
    #[doc = include_str!("../../docs/src/guards/rate_limit.md")]
    mod rate_limit {}
    #[doc = include_str!("../../docs/src/guards/lockout.md")]
    mod lockout {}
    #[doc = include_str!("../../docs/src/guards/deadline.md")]
    mod deadline {}
    #[doc = include_str!("../../docs/src/guards/concurrency.md")]
    mod concurrency {}
    #[doc = include_str!("../../docs/src/inbound.md")]
    mod inbound {}
    #[doc = include_str!("../../docs/src/disconnect.md")]
    mod disconnect {}
    #[doc = include_str!("../../docs/src/outbound.md")]
    mod outbound {}
    #[doc = include_str!("../../docs/src/shared_breakers.md")]
    mod shared_breakers {}
    #[doc = include_str!("../../docs/src/errors.md")]
    mod errors {}
    #[doc = include_str!("../../docs/src/guards/own.md")]
    mod own_guard {}
    #[doc = include_str!("../../docs/src/failure_modes.md")]
    mod failure_modes {}
    #[doc = include_str!("../../docs/src/limits.md")]
    mod limits {}
    #[doc = include_str!("../../docs/src/proxies.md")]
    mod proxies {}
    #[doc = include_str!("../../docs/src/architecture.md")]
    mod architecture {}
    #[doc = include_str!("../../docs/src/dependencies.md")]
    mod dependencies {}
}
