//! A guarded service while its Redis goes and comes back: what it answers, how soon, and what it asks meanwhile.
//!
//! Deadlines are longer than the defaults, so that a busy machine is not taken for an outage.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use poem::{Endpoint, EndpointExt, Request, Response, Route, get, handler, http::StatusCode};
use resilience::{
    Identity, Resilience, ResilienceEndpoint,
    breaker::{BreakerConfig, State},
    resilient,
    store::{ApiKeys, RedisStore},
};
use resilience_tests::{Proxy, RedisServer, eventually};
use tokio::time::{Instant, sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(1);
const OPEN_FOR: Duration = Duration::from_millis(300);
/// How long after Redis is back a service may take to notice.
const RECOVERY: Duration = OPEN_FOR.saturating_add(Duration::from_millis(500));
/// What a busy machine may add to any time.
const NOISE: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(60 * 60);

#[resilient(auth = "fail_closed", flag("checkout", default = false), rate_limit(1_000_000, 60))]
#[handler]
async fn checkout(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(1_000_000, 60), flag("catalog", default = false))]
#[handler]
async fn catalog() -> &'static str {
    "a book and a lamp"
}

/// A Redis that knows one key, and keeps it over a kill.
fn redis() -> RedisServer {
    let redis = RedisServer::start_with(&["--appendonly", "yes"]);
    redis.cli(&["SET", "apikey:letmein", "user-42"]);
    redis
}

struct Service {
    app: ResilienceEndpoint<Route>,
    resilience: Resilience,
    store: RedisStore,
}

impl Service {
    /// A service that has not reached its Redis yet.
    fn boot(url: String, open_for: Duration) -> Self {
        Self::patient(url, open_for, DEADLINE)
    }

    /// One whose guards wait so long for Redis.
    fn patient(url: String, open_for: Duration, deadline: Duration) -> Self {
        let store = RedisStore::builder(url)
            .api_keys(ApiKeys::plain())
            .checkout_timeout(deadline)
            .reconnect_cap(OPEN_FOR)
            .build()
            .unwrap();
        let resilience = Resilience::builder()
            .store(store.clone())
            .breaker(
                BreakerConfig::default()
                    .with_failures_in_a_row(5)
                    .with_open_for(open_for),
            )
            .auth_deadline(deadline)
            .flag_deadline(deadline)
            .rate_limit_deadline(deadline)
            .build()
            .unwrap();
        let routes = Route::new().at("/checkout", get(checkout)).at("/catalog", get(catalog));
        Self {
            app: routes.with(resilience.clone()),
            resilience,
            store,
        }
    }

    /// A service that serves.
    async fn start(url: String) -> Self {
        Self::boot(url, OPEN_FOR).up().await
    }

    async fn up(self) -> Self {
        self.is_connected().await;
        assert_eq!(self.ask("/checkout").await, Answer::Served);
        self
    }

    async fn is_connected(&self) {
        eventually("two connections serve", async || self.store.connections() == 2).await;
    }

    /// No request may take longer than its slowest guard.
    async fn ask(&self, path: &str) -> Answer {
        let asked = Instant::now();
        let request = Request::builder().uri_str(path).header("x-api-key", "letmein").finish();
        let response = self.app.get_response(request).await;
        let took = asked.elapsed();
        assert!(took <= DEADLINE + NOISE, "{path} took {took:?}");
        Answer::of(&response)
    }

    fn state(&self) -> State {
        let breakers = self.resilience.breakers();
        let shared = breakers.iter().find(|breaker| breaker.name() == "store");
        shared.expect("all operations share one").state()
    }

    /// Every answer is the one that was decided for an outage, and a few of them open the breaker.
    async fn falls_back_and_opens(&self) {
        for _ in 0..3 {
            assert_eq!(self.ask("/checkout").await, Answer::Refused);
            assert_eq!(self.ask("/catalog").await, Answer::Degraded);
        }
        assert_ne!(self.state(), State::Closed);
    }

    /// Redis is back by now: traffic finds it soon, no request fails from then on, and no dead connection is left.
    async fn recovers(&self, redis: &RedisServer) {
        let back = Instant::now();
        while self.ask("/checkout").await != Answer::Served {
            let elapsed = back.elapsed();
            assert!(elapsed <= RECOVERY + NOISE, "no recovery within {elapsed:?}");
            sleep(Duration::from_millis(1)).await;
        }
        self.serves(redis).await;
    }

    async fn serves(&self, redis: &RedisServer) {
        for _ in 0..200 {
            assert_eq!(self.ask("/checkout").await, Answer::Served);
            assert_eq!(self.ask("/catalog").await, Answer::Served);
        }
        assert_eq!(self.state(), State::Closed);
        self.is_connected().await;
        eventually("the server sees two connections", async || {
            let clients = redis.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
            clients
                .lines()
                .filter(|client| !client.contains("cmd=client|list"))
                .count()
                == 2
        })
        .await;
    }
}

/// All that a service may answer to a caller with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// With Redis's word on everything.
    Served,
    /// By the handler, though a flag or a limit could not be read.
    Degraded,
    /// Because the caller could not be verified.
    Refused,
}

impl Answer {
    fn of(response: &Response) -> Self {
        let header = |name: &str| response.header(name);
        let limiter = header("x-ratelimit-fallback");
        assert!(limiter.is_none_or(|fallback| fallback == "open"), "{response:?}");
        match response.status() {
            StatusCode::OK if limiter.is_none() && header("x-flag-fallback").is_none() => {
                assert_eq!(header("x-ratelimit-limit"), Some("1000000"), "{response:?}");
                Self::Served
            }
            StatusCode::OK => Self::Degraded,
            StatusCode::SERVICE_UNAVAILABLE => {
                assert_eq!(header("retry-after"), Some("30"), "{response:?}");
                assert!(
                    header("x-flag-fallback").is_none_or(|flag| flag == "checkout"),
                    "{response:?}"
                );
                Self::Refused
            }
            _ => panic!("{response:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_under_traffic() {
    let mut redis = redis();
    let service = Service::start(redis.url()).await;
    for _ in 0..3 {
        redis.kill();
        service.falls_back_and_opens().await;
        redis.restart();
        service.recovers(&redis).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_without_traffic_after_the_breaker_has_opened() {
    let mut redis = redis();
    let service = Service::start(redis.url()).await;
    let mut events = service.resilience.events();
    redis.kill();
    service.falls_back_and_opens().await;
    redis.restart();
    let closes = async { while events.recv().await.expect("none is missed").to != State::Closed {} };
    timeout(RECOVERY + NOISE, closes)
        .await
        .expect("nobody but the prober asks");
    service.serves(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_without_any_traffic() {
    let mut redis = redis();
    let service = Service::start(redis.url()).await;
    let mut events = service.resilience.events();
    redis.kill();
    eventually("the loss is noticed", async || !service.store.is_connected()).await;
    redis.restart();
    service.is_connected().await;
    service.serves(&redis).await;
    assert!(events.try_recv().is_err(), "no breaker has moved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_and_thawed() {
    let redis = redis();
    let service = Service::start(redis.url()).await;
    redis.freeze();
    service.falls_back_and_opens().await;
    redis.thaw();
    service.recovers(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_way_that_swallows_everything() {
    let redis = redis();
    let proxy = Proxy::start(redis.port()).await;
    let service = Service::start(proxy.url()).await;
    proxy.blackhole().await;
    service.falls_back_and_opens().await;
    proxy.heal().await;
    service.recovers(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn booted_while_redis_is_down() {
    let mut redis = redis();
    redis.kill();
    let service = Service::boot(redis.url(), OPEN_FOR);
    service.falls_back_and_opens().await;
    redis.restart();
    service.recovers(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn booted_while_redis_accepts_and_never_answers() {
    let redis = redis();
    let proxy = Proxy::start(redis.port()).await;
    proxy.blackhole().await;
    let service = Service::boot(proxy.url(), OPEN_FOR);
    service.falls_back_and_opens().await;
    proxy.heal().await;
    service.recovers(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_breaker_open_no_request_asks_or_waits() {
    let redis = redis();
    let proxy = Proxy::start(redis.port()).await;
    let service = Service::boot(proxy.url(), HOUR);
    service.is_connected().await;
    proxy.refuse().await;
    service.falls_back_and_opens().await;

    // Redis is back, and could be asked. It is not, until the hour is over.
    proxy.heal().await;
    service.is_connected().await;
    let accepted = proxy.accepted();
    redis.cli(&["CONFIG", "RESETSTAT"]);
    for _ in 0..500 {
        let refused = service.ask("/checkout").now_or_never().expect("it waits for nothing");
        assert_eq!(refused, Answer::Refused);
        let degraded = service.ask("/catalog").now_or_never().expect("it waits for nothing");
        assert_eq!(degraded, Answer::Degraded);
    }
    let stats = redis.cli(&["INFO", "commandstats"]);
    let commands: BTreeSet<_> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next())
        .collect();
    for asked in ["get", "set", "evalsha", "eval", "script|load", "ping", "hello"] {
        assert!(!commands.contains(asked), "{commands:?}");
    }
    assert_eq!(proxy.accepted(), accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hammered_through_kills_and_freezes() {
    let mut redis = redis();
    let load = Arc::new(Load {
        // Patient enough that a machine which is busy elsewhere is not taken for a Redis that is down.
        service: Service::patient(redis.url(), OPEN_FOR, NOISE).up().await,
        is_well: AtomicBool::new(true),
        is_over: AtomicBool::new(false),
        answered: AtomicUsize::new(0),
    });
    let service = &load.service;
    let clients: Vec<_> = (0..16)
        .map(|_| tokio::spawn(Arc::clone(&load).ask_on_and_on()))
        .collect();
    let traffic = async |what: &str| {
        let until = load.answered.load(Ordering::SeqCst) + 500;
        // A client whose expectation has failed answers no more.
        let more =
            async || load.answered.load(Ordering::SeqCst) >= until || clients.iter().any(|client| client.is_finished());
        eventually(what, more).await;
    };

    for killed in [true, false, true] {
        traffic("it serves").await;
        load.is_well.store(false, Ordering::SeqCst);
        if killed {
            redis.kill()
        } else {
            redis.freeze()
        }
        eventually("the breaker opens", async || service.state() != State::Closed).await;
        traffic("it falls back").await;
        if killed {
            redis.restart()
        } else {
            redis.thaw()
        }
        let back = Instant::now();
        eventually("it recovers", async || service.ask("/checkout").await == Answer::Served).await;
        assert!(back.elapsed() <= RECOVERY + NOISE, "{:?}", back.elapsed());
        load.is_well.store(true, Ordering::SeqCst);
    }
    traffic("it serves again").await;
    load.is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("every expectation has held");
    }
    service.serves(&redis).await;
}

/// What the clients of a hammered service share.
struct Load {
    service: Service,
    /// Redis is up, and the service has noticed.
    is_well: AtomicBool,
    is_over: AtomicBool,
    answered: AtomicUsize,
}

impl Load {
    /// Asks until it is over. While Redis is well, every request must be served.
    async fn ask_on_and_on(self: Arc<Self>) {
        while !self.is_over.load(Ordering::SeqCst) {
            let well_before = self.is_well.load(Ordering::SeqCst);
            let answer = self.service.ask("/checkout").await;
            if well_before && self.is_well.load(Ordering::SeqCst) {
                assert_eq!(answer, Answer::Served);
            }
            self.answered.fetch_add(1, Ordering::SeqCst);
            // Answers of an open breaker wait for nothing, and would keep everybody else waiting.
            tokio::task::yield_now().await;
        }
    }
}
