//! A service that `tests/flood` floods, and the honest client that is watched meanwhile.
//!
//! `flood-app serve` reads PORT and REDIS_URL. `flood-app watch URL SECONDS` asks ten times a second, with a key that the
//! service knows, and prints how it was answered.

use std::{
    collections::HashMap,
    env,
    error::Error,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use poem::{
    EndpointExt, Request, Response, Route, Server, get, handler,
    http::StatusCode,
    listener::TcpListener,
    post,
    web::{Data, Json},
};
use resilience::{
    Identity, Resilience,
    breaker::State,
    resilient,
    store::{RedisStore, StoreAdmin},
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

const KEY: &str = "an honest key";
const USER: &str = "honest";

/// What passed the limit of the catalog, by address, and how often a breaker has opened.
#[derive(Debug, Default)]
struct Counts {
    passed: Mutex<HashMap<String, u64>>,
    opened: AtomicU64,
}

/// What the honest client asks for.
#[resilient(auth = "fail_closed", flag("honest", default = false), rate_limit(100_000, 60, key = user))]
#[handler]
async fn honest(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(100, 60), flag("catalog", default = false))]
#[handler]
async fn catalog(request: &Request, Data(counts): Data<&Arc<Counts>>) -> &'static str {
    let address = request.header("x-forwarded-for").unwrap_or("one").to_owned();
    let mut passed = counts.passed.lock().unwrap_or_else(PoisonError::into_inner);
    *passed.entry(address).or_default() += 1;
    "a book and a lamp"
}

#[resilient(
    lockout(5, "15m", key = account("json:/username")),
    lockout(20, "15m", key = ip)
)]
#[handler]
async fn login(_body: Json<HashMap<String, String>>) -> Response {
    StatusCode::UNAUTHORIZED.into()
}

#[handler]
async fn readyz(resilience: Resilience) -> String {
    format!("{:?}\n", resilience.health().await)
}

#[handler]
fn show(Data(counts): Data<&Arc<Counts>>) -> String {
    let passed = counts.passed.lock().unwrap_or_else(PoisonError::into_inner);
    let (sum, most) = (
        passed.values().sum::<u64>(),
        passed.values().max().copied().unwrap_or(0),
    );
    let opened = counts.opened.load(Relaxed);
    format!("opened={opened} passed={sum} most={most} addresses={}\n", passed.len())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let (url, port) = (env::var("REDIS_URL")?, env::var("PORT")?);
    RedisStore::new(&url)?.add_api_key(KEY, USER).await?;
    let resilience = Resilience::builder()
        .redis(&url)
        .trusted_proxies(["127.0.0.0/8"])
        .build()?;
    let seen = Arc::new(Counts::default());
    let mut events = resilience.events();
    let counting = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            counting.opened.fetch_add(u64::from(event.to == State::Open), Relaxed);
        }
    });
    let app = Route::new()
        .at("/honest", get(honest))
        .at("/catalog", get(catalog))
        .at("/login", post(login))
        .at("/readyz", get(readyz))
        .at("/counts", get(show))
        .data(seen)
        .with(resilience);
    Server::new(TcpListener::bind(format!("127.0.0.1:{port}")))
        .run(app)
        .await?;
    Ok(())
}

async fn watch(url: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let client = reqwest::Client::new();
    let mut requests = JoinSet::new();
    let mut tick = interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..seconds * 10 {
        tick.tick().await;
        let request = client
            .get(format!("{url}/honest"))
            .header("x-api-key", KEY)
            .header("x-forwarded-for", "192.0.2.7");
        requests.spawn(async move {
            let sent = Instant::now();
            let answer = timeout(Duration::from_secs(10), async {
                let response = request.send().await.ok()?;
                Some((response.status().as_u16(), response.text().await.ok()?))
            });
            (answer.await.ok().flatten(), sent.elapsed())
        });
    }
    let answers = requests.join_all().await;
    let all = answers.len();
    let mut kinds: HashMap<String, usize> = HashMap::new();
    for (answer, _) in &answers {
        let kind = match answer {
            Some((200, user)) if user == USER => "right".to_owned(),
            Some((200, _)) => "WRONG".to_owned(),
            Some((status, body)) => {
                let code = body
                    .split("\"error\":\"")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next());
                format!("{status}:{}", code.unwrap_or("-"))
            }
            None => "none".to_owned(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let mut took: Vec<_> = answers.iter().map(|(_, took)| took.as_millis()).collect();
    took.sort_unstable();
    let right = kinds.remove("right").unwrap_or(0);
    let percent = 100.0 * right as f64 / all as f64;
    let (half, most) = (took[all / 2], took[all * 99 / 100]);
    println!("right={right}/{all} ({percent:.1}%) p50={half}ms p99={most}ms other={kinds:?}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["serve"] => serve().await,
        ["watch", url, seconds] => watch(url, seconds.parse()?).await,
        _ => Err("write `serve` or `watch URL SECONDS`".into()),
    }
}
