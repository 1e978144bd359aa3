//! Lockouts without the attribute: the same in health and in an outage, over each store.

use std::time::Duration;

use futures_util::future::join_all;
use resilience::{
    Error, OnOutage, Resilience,
    breaker::{BreakerConfig, State},
    client::ClientKey,
    lockout::{BeginError, Lockout, LockoutConfig},
    store::{RedisStore, Settle},
    testing::{Answer, ScriptedStore},
};
use resilience_tests::{Proxy, RedisServer, eventually};
use tokio::time::Instant;

const LOCK: Duration = Duration::from_secs(15 * 60);

fn ada() -> ClientKey {
    ClientKey::account("ada").unwrap()
}

/// A breaker that opens at the second failure in a row.
fn touchy() -> BreakerConfig {
    BreakerConfig::default()
        .with_failures_in_a_row(2)
        .with_open_for(Duration::from_millis(200))
}

/// How the breaker stands that all operations share.
fn state(resilience: &Resilience) -> State {
    let breakers = resilience.breakers();
    let shared = breakers.iter().find(|breaker| breaker.name() == "store");
    shared.expect("all operations share one").state()
}

async fn scenario(login: &Lockout) {
    for _ in 0..4 {
        login.begin(&ada()).await.unwrap().fail().await.unwrap();
    }
    login.begin(&ada()).await.unwrap().abandon().await.unwrap();
    assert_eq!(login.status(&ada()).await.unwrap().attempts, 4);
    // Dropped, it fails: told by a task of its own.
    drop(login.begin(&ada()).await.unwrap());
    eventually("the lock has begun", async || {
        login.status(&ada()).await.unwrap().locks == 1
    })
    .await;
    let locked = login.begin(&ada()).await.unwrap_err();
    let BeginError::Locked { retry_after } = locked else {
        panic!("{locked:?}");
    };
    assert!(retry_after <= LOCK && retry_after > LOCK - Duration::from_secs(60));
    let error = Error::from(locked);
    assert_eq!((error.code(), error.http_status().as_u16()), ("locked_out", 429));
    assert_eq!(login.status(&ada()).await.unwrap().locks, 1);
    assert!(login.unlock(&ada()).await.unwrap() && !login.unlock(&ada()).await.unwrap());
    for _ in 0..3 {
        login.begin(&ada()).await.unwrap().fail().await.unwrap();
        login.begin(&ada()).await.unwrap().succeed().await.unwrap();
        assert_eq!(login.status(&ada()).await.unwrap().attempts, 0);
    }
    let guess = || async {
        let attempt = login.begin(&ada()).await?;
        attempt.fail().await.unwrap();
        Ok::<_, BeginError>(())
    };
    let begun = join_all((0..200).map(|_| guess())).await;
    assert_eq!(begun.iter().filter(|begun| begun.is_ok()).count(), 5);
    login.unlock(&ada()).await.unwrap();
}

#[tokio::test]
async fn attempts_are_counted_in_this_process() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    scenario(&login).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_counted_in_redis_and_refused_while_it_is_gone() {
    let mut redis = RedisServer::start();
    let store = RedisStore::new(redis.url()).unwrap();
    eventually("connected", async || store.connections() == 2).await;
    let settings = Resilience::builder().store(store).breaker(touchy());
    let resilience = settings.lockout_deadline(Duration::from_secs(5)).build().unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    scenario(&login).await;

    redis.kill();
    for _ in 0..10 {
        let error = Error::from(login.begin(&ada()).await.unwrap_err());
        assert_eq!(
            (error.code(), error.http_status().as_u16()),
            ("lockout_unavailable", 503)
        );
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    }
    assert!(login.status(&ada()).await.is_err());
    assert_ne!(state(&resilience), State::Closed);
    redis.restart();
    eventually("the breaker is closed", async || state(&resilience) == State::Closed).await;
    scenario(&login).await;
}

/// Six at once, of an account that allows five.
#[tokio::test]
async fn attempts_under_way_are_told_from_a_lock() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    let subject = ada();
    let begun = join_all((0..5).map(|_| login.begin(&subject))).await;
    let busy = login.begin(&ada()).await.unwrap_err();
    assert!(matches!(busy, BeginError::UnderWay { retry_after } if retry_after <= Duration::from_secs(1)));
    let error = Error::from(busy);
    assert_eq!(
        (error.code(), error.http_status().as_u16()),
        ("attempts_under_way", 429)
    );
    let status = login.status(&ada()).await.unwrap();
    assert_eq!((status.attempts, status.pending, status.locked_for), (0, 5, None));
    for attempt in begun {
        attempt.unwrap().succeed().await.unwrap();
    }
    assert!(login.begin(&ada()).await.is_ok());
}

/// The two spellings share a tally, and may be two accounts.
#[tokio::test]
async fn a_success_clears_failures_of_its_own_spelling_only() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    for own in ["Ada", "ada\u{200d}"] {
        for _ in 0..4 {
            login.begin(&ada()).await.unwrap().fail().await.unwrap();
        }
        let own = ClientKey::account(own).unwrap();
        assert_eq!(own, ada());
        login.begin(&own).await.unwrap().succeed().await.unwrap();
        assert_eq!(login.status(&ada()).await.unwrap().attempts, 4);
        login.begin(&ada()).await.unwrap().succeed().await.unwrap();
        assert_eq!(login.status(&ada()).await.unwrap().attempts, 0);
    }
    // A key of another kind is its own origin.
    let user = ClientKey::user("user-42");
    login.begin(&user).await.unwrap().fail().await.unwrap();
    login.begin(&user).await.unwrap().succeed().await.unwrap();
    assert_eq!(login.status(&user).await.unwrap().attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_has_failed_and_one_that_never_began_is_given_back() {
    let store = ScriptedStore::new().on_begin(Answer::ok(()).after(Duration::from_millis(10)));
    let resilience = Resilience::builder().store(store.clone()).build().unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    let subject = ada().as_str().to_owned();
    let within = tokio::time::timeout(Duration::from_millis(5), login.begin(&ada())).await;
    assert!(within.is_err());
    eventually("it is given back", async || store.calls().settle == 1).await;
    drop(login.begin(&ada()).await.unwrap());
    eventually("it has failed", async || store.calls().settle == 2).await;
    // Also while it is being settled otherwise.
    let attempt = login.begin(&ada()).await.unwrap();
    drop(attempt.succeed());
    eventually("it has failed", async || store.calls().settle == 3).await;
    let settled = [Settle::GiveBack, Settle::Fail, Settle::Fail].map(|settle| (subject.clone(), settle));
    assert_eq!(store.settled(), settled);
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_the_store_is_not_asked() {
    let store = ScriptedStore::new()
        .on_begin(Answer::never())
        .on_settle(Answer::never())
        .on_probe(Answer::never());
    let resilience = Resilience::builder()
        .store(store.clone())
        .breaker(touchy())
        .build()
        .unwrap();
    let login = resilience.lockout("login", LockoutConfig::new(5, LOCK)).unwrap();
    for waited in [100, 100, 0, 0, 0] {
        let asked = Instant::now();
        assert!(matches!(login.begin(&ada()).await, Err(BeginError::Unavailable { .. })));
        assert_eq!(asked.elapsed().as_millis(), waited);
    }
    assert_eq!(store.calls().begin, 2);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_answered_as_was_decided() {
    let store = ScriptedStore::new().down();
    let resilience = Resilience::builder().store(store).build().unwrap();
    let config = LockoutConfig::new(2, LOCK);
    let open = resilience
        .lockout("open", config.clone().with_on_outage(OnOutage::FailOpen))
        .unwrap();
    for _ in 0..5 {
        let attempt = open.begin(&ada()).await.unwrap();
        assert!(!attempt.is_counted_by_the_store());
        attempt.succeed().await.unwrap();
    }
    let local = resilience
        .lockout("local", config.with_on_outage(OnOutage::FailLocal))
        .unwrap();
    local.begin(&ada()).await.unwrap().fail().await.unwrap();
    local.begin(&ada()).await.unwrap().abandon().await.unwrap();
    local.begin(&ada()).await.unwrap().fail().await.unwrap();
    assert!(matches!(local.begin(&ada()).await, Err(BeginError::Locked { .. })));
}

/// Slow, not down: whoever was refused for it must not be locked out by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_was_counted_too_late_to_be_let_in_is_given_back() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let store = RedisStore::new(proxy.url()).unwrap();
    eventually("connected", async || store.connections() == 2).await;
    let settings = Resilience::builder().store(store.clone());
    let resilience = settings.lockout_deadline(Duration::from_millis(300)).build().unwrap();
    for on_outage in [OnOutage::FailClosed, OnOutage::FailLocal] {
        let config = LockoutConfig::new(2, LOCK).with_on_outage(on_outage);
        let login = resilience.lockout(on_outage.as_str(), config).unwrap();
        eventually("the store serves", async || login.status(&ada()).await.is_ok()).await;
        proxy.delay(Duration::from_millis(600)).await;
        match login.begin(&ada()).await {
            Ok(attempt) => attempt.abandon().await.unwrap(),
            Err(error) => assert!(matches!(error, BeginError::Unavailable { .. }), "{error}"),
        }
        proxy.heal().await;
        eventually("nothing stays counted", async || {
            login.status(&ada()).await.is_ok_and(|status| status.attempts == 0)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_this_process_has_locked_it_unlocks_in_the_outage_too() {
    let store = ScriptedStore::new().down();
    let resilience = Resilience::builder().store(store).build().unwrap();
    let config = LockoutConfig::new(1, LOCK).with_on_outage(OnOutage::FailLocal);
    let login = resilience.lockout("login", config).unwrap();
    login.begin(&ada()).await.unwrap().fail().await.unwrap();
    assert!(login.begin(&ada()).await.is_err());
    assert!(login.unlock(&ada()).await.is_err(), "the store may hold a lock too");
    assert!(login.begin(&ada()).await.is_ok());
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let config = |attempts| LockoutConfig::new(attempts, LOCK);
    for (name, config) in [
        ("", config(5)),
        ("a name", config(5)),
        ("login", config(0)),
        ("login", config(1_001)),
        ("login", LockoutConfig::new(5, Duration::ZERO)),
        ("login", config(5).with_durations([])),
        ("login", config(5).with_durations([LOCK, LOCK])),
        ("login", config(5).with_deadline(Duration::ZERO)),
    ] {
        assert!(resilience.lockout(name, config.clone()).is_err(), "{name:?} {config:?}");
    }
}
