//! A real overload: callers come at five times what a service can do, over HTTP, and each waits for 100 ms. Shows how many
//! get their answer, how long those that are let in take, and how quickly the others are turned away; with a limit that
//! adapts, with fixed ones, and with one that is far too large; and at ten times for two of them.
//!
//! `cargo run --release -p resilience-tests --bin overload [seconds per case, 10]`

use std::{
    env,
    error::Error,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use poem::{
    EndpointExt, Route, Server, get, handler,
    listener::{Acceptor, Listener, TcpListener},
    web::Data,
};
use resilience::{
    Resilience,
    concurrency::{Adaptive, ConcurrencyConfig},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};

/// What the dependency does at once, and how long each takes: 800 a second.
const WORKERS: u32 = 8;
const WORK: Duration = Duration::from_millis(10);
/// How long a caller waits.
const PATIENCE: Duration = Duration::from_millis(100);

/// Does so much at once and no more, and everything more slowly the more there is to do.
struct Dependency {
    workers: Semaphore,
    asked: AtomicU32,
}

/// One who has asked, whatever becomes of it.
struct Asked<'a>(&'a AtomicU32);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[handler]
async fn work(Data(dependency): Data<&Arc<Dependency>>) -> &'static str {
    let asked = dependency.asked.fetch_add(1, Ordering::Relaxed) + 1;
    let _asked = Asked(&dependency.asked);
    let _worker = dependency.workers.acquire().await;
    let excess = asked.saturating_sub(WORKERS);
    sleep(WORK + WORK * excess / 50).await;
    "done"
}

/// Status, and how long it took.
type Answer = (u16, Duration);

/// Callers come at random, so many a second, whatever becomes of the others.
async fn run(limit: ConcurrencyConfig, rate: f64, seconds: u64) -> Result<Vec<Answer>, Box<dyn Error>> {
    let resilience = Resilience::builder().memory().build()?;
    let dependency = Arc::new(Dependency {
        workers: Semaphore::new(WORKERS as usize),
        asked: AtomicU32::new(0),
    });
    let guards = resilience.inbound("overload").concurrency(limit).build()?;
    let app = Route::new().at("/", get(work)).data(dependency).with(guards);
    let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await?;
    let addresses = acceptor.local_addr();
    let address = addresses.first().and_then(|address| address.as_socket_addr().copied());
    let url = format!("http://{}/", address.ok_or("no address")?);
    let server = tokio::spawn(Server::new_with_acceptor(acceptor).run(app));

    let client = reqwest::Client::builder().pool_max_idle_per_host(usize::MAX).build()?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut next = Instant::now();
    let end = next + Duration::from_secs(seconds);
    // What comes in the first fifth warms up connections, and the limit.
    let counts_from = next + Duration::from_secs(seconds) / 5;
    while next < end {
        next += Duration::from_secs_f64(-fastrand::f64().max(f64::MIN_POSITIVE).ln() / rate);
        sleep_until(next).await;
        let (request, tell) = (client.get(&url), tell.clone());
        let counts = next >= counts_from;
        tokio::spawn(async move {
            let began = Instant::now();
            let answer = async { request.send().await.ok().map(|response| response.status().as_u16()) };
            // A caller that has waited for long enough hangs up; it is looked at for longer, to see how late it would be.
            let status = timeout(50 * PATIENCE, answer).await.ok().flatten().unwrap_or_default();
            if counts {
                let _gone = tell.send((status, began.elapsed()));
            }
        });
    }
    drop(tell);
    let mut answers = Vec::new();
    while let Some(answer) = told.recv().await {
        answers.push(answer);
    }
    server.abort();
    Ok(answers)
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let place = sorted.len() * percent / 100;
    sorted
        .get(place.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, Duration::as_secs_f64)
        * 1_000.0
}

/// Of this process, in MiB.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size: u64 = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or("no VmRSS")?
        .parse()?;
    Ok(size / 1024)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = env::args().nth(1).map_or(Ok(10), |seconds| seconds.parse())?;
    let capacity = f64::from(WORKERS) / WORK.as_secs_f64();
    let fixed = ConcurrencyConfig::new;
    println!(
        "{:<26} {:>9} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "", "in time/s", "p50 in ms", "p99 in ms", "shed/s", "shed p99", "MiB"
    );
    for (what, limit, rate) in [
        ("unloaded, fixed 512", fixed(512), capacity / 10.0),
        ("5 times, fixed 4", fixed(4), 5.0 * capacity),
        ("5 times, fixed 8", fixed(8), 5.0 * capacity),
        ("5 times, fixed 12", fixed(12), 5.0 * capacity),
        ("5 times, fixed 512", fixed(512), 5.0 * capacity),
        (
            "5 times, adaptive to 512",
            fixed(512).with_adaptive(Adaptive::default()),
            5.0 * capacity,
        ),
        ("10 times, fixed 8", fixed(8), 10.0 * capacity),
        (
            "10 times, adaptive to 512",
            fixed(512).with_adaptive(Adaptive::default()),
            10.0 * capacity,
        ),
    ] {
        let answers = run(limit, rate, seconds).await?;
        let counted = seconds as f64 * 0.8;
        let (mut served, mut shed): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (status, took) in answers {
            match status {
                200 => served.push(took),
                503 => shed.push(took),
                _ => {}
            }
        }
        served.sort();
        shed.sort();
        let in_time = served.iter().filter(|took| **took <= PATIENCE).count() as f64 / counted;
        println!(
            "{what:<26} {in_time:>9.0} {:>10.1} {:>10.1} {:>10.0} {:>10.1} {:>7}",
            percentile(&served, 50),
            percentile(&served, 99),
            shed.len() as f64 / counted,
            percentile(&shed, 99),
            resident()?,
        );
    }
    Ok(())
}
