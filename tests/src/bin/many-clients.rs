//! What a million clients cost in memory: each sends one request that is counted by itself, while the store serves, while
//! it is down and the process counts, and as many log in. Prints by how much the process has grown.
//!
//! `cargo run --release -p resilience-tests --bin many-clients`

use std::{error::Error, fs};

use poem::{Endpoint, EndpointExt, Request, handler, http::StatusCode};
use resilience::{Resilience, resilient, store::MemoryStore};

const CLIENTS: u32 = 1_000_000;

#[resilient(rate_limit(1, "1h", key = header("x-client")))]
#[handler]
async fn counted() {}

#[resilient(rate_limit(1, "1h", key = header("x-client"), on_outage = "fail_local"))]
#[handler]
async fn counted_here() {}

#[resilient(lockout(5, "1h", key = account("form:username")))]
#[handler]
async fn login() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

/// Of this process, in KiB.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    Ok(size.ok_or("no VmRSS")?.parse()?)
}

async fn measure(what: &str, app: impl Endpoint, request: impl Fn(u32) -> Request) -> Result<(), Box<dyn Error>> {
    let before = resident()?;
    // Each comes twice: the second time it may be one that is remembered as over its quota.
    for client in 0..CLIENTS {
        for _ in 0..2 {
            drop(app.call(request(client)).await);
        }
    }
    println!("{what}: {} MiB more", resident()?.saturating_sub(before) / 1024);
    Ok(())
}

fn client(client: u32) -> Request {
    Request::builder().header("x-client", client.to_string()).finish()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Nobody listens there.
    let down = || Resilience::builder().redis("redis://127.0.0.1:1");
    let embedded = || Resilience::builder().store(MemoryStore::new());
    println!("{CLIENTS} clients");
    measure("quotas, store up", counted.with(embedded().build()?), client).await?;
    measure("quotas, store down", counted_here.with(down().build()?), client).await?;
    let attempt = |client: u32| Request::builder().body(format!("username=user-{client}"));
    measure("lockouts, store up", login.with(embedded().build()?), attempt).await
}
