//! What a million clients cost in memory: each sends one request that is counted by itself, while the store serves, while
//! it is down and the process counts, and as many log in. Prints by how much the process has grown.
//!
//! `cargo run --release -p resilience-tests --bin many-clients`

use std::{env, error::Error, fs, process::Command};

use poem::{
    Endpoint, EndpointExt, Request, handler,
    http::{Method, StatusCode},
};
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
    let Some(what) = env::args().nth(1) else {
        // Each in a process of its own: one would use the memory that another has left.
        println!("{CLIENTS} clients");
        for what in ["quotas, store up", "quotas, store down", "lockouts, store up"] {
            Command::new(env::current_exe()?).arg(what).status()?;
        }
        return Ok(());
    };
    // Nobody listens there.
    let down = || Resilience::builder().redis("redis://127.0.0.1:1");
    let embedded = || Resilience::builder().store(MemoryStore::new());
    let attempt = |client: u32| {
        Request::builder()
            .method(Method::POST)
            .body(format!("username=user-{client}"))
    };
    match &*what {
        "quotas, store up" => measure(&what, counted.with(embedded().build()?), client).await,
        "quotas, store down" => measure(&what, counted_here.with(down().build()?), client).await,
        _ => measure(&what, login.with(embedded().build()?), attempt).await,
    }
}
