//! A flood of attempts at a locked account or address: it costs the store little.

use poem::EndpointExt;
use resilience::{Resilience, lockout::LockoutConfig, store::RedisStore};
use resilience_tests::{RedisServer, eventually};
use tokio::time::sleep;

use super::*;
use crate::chain::ms;

const LOCK: Duration = Duration::from_secs(900);

#[tokio::test(start_paused = true)]
async fn a_locked_address_is_asked_about_once_a_second() {
    let store = ScriptedStore::new();
    store.on_begin_locked("ip:", LOCK);
    let app = app(login, over(&store));
    for second in 0..3_u64 {
        for tick in 0..1_000_u64 {
            let refused = ask(&app, attempt("ada", "200")).await;
            assert_eq!(refused.code(), "locked_out");
            // Rounded up to seconds. The script's lock does not run down.
            assert_eq!(refused.header("retry-after"), Some("900".into()), "{second} {tick}");
            sleep(ms(1)).await;
        }
    }
    assert_eq!(store.calls().begin, 3);
}

/// The address is not asked about either, and has nothing to be given back.
#[tokio::test(start_paused = true)]
async fn a_locked_account_is_asked_about_once_a_second() {
    let store = ScriptedStore::new();
    store.on_begin_locked("account:", LOCK);
    let app = app(login, over(&store));
    for second in 1..4 {
        for _ in 0..1_000 {
            assert_eq!(ask(&app, attempt("ada", "200")).await.code(), "locked_out");
            sleep(ms(1)).await;
        }
        assert_eq!((store.calls().begin, store.calls().settle), (2 * second, second));
    }
    // Others are not refused for it, and mistakes are still told.
    store.on_begin(Answer::ok(()));
    assert_eq!(status(&app, "eve", "200").await, 200);
    assert_eq!(status(&app, "", "200").await, 400);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_may_begin_are_always_counted() {
    let store = ScriptedStore::new();
    let app = app(login, over(&store));
    for nth in 1..4 {
        assert_eq!(status(&app, "ada", "200").await, 200);
        assert_eq!(store.calls().begin, 2 * nth);
    }
}

#[resilient(lockout(3, "15m", key = account("json:/username")), lockout(3, "1h", key = account("json:/tenant")))]
#[handler]
async fn two_accounts() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

/// Of lockouts that are asked together the longest wait decides, whether the store answers or the memory.
#[tokio::test(start_paused = true)]
async fn lockouts_that_decide_together_answer_as_the_store_does() {
    let resilience = |remembered| Resilience::builder().memory().remember_blocked(remembered);
    let (known, asked) = (app(two_accounts, resilience(100)), app(two_accounts, resilience(0)));
    let request =
        |username: &str, tenant: &str| post(&serde_json::json!({ "username": username, "tenant": tenant }).to_string());
    let mut random = fastrand::Rng::with_seed(7);
    for nth in 0..300 {
        let (username, tenant) = (
            random.choice(["ada", "eve", "bob"]),
            random.choice(["a", "b", "c", "d"]),
        );
        let (username, tenant) = (username.unwrap(), tenant.unwrap());
        let one = ask(&known, request(username, tenant)).await;
        let other = ask(&asked, request(username, tenant)).await;
        let wait = |answer: &crate::chain::Answered| {
            let wait = answer.header("retry-after");
            wait.map_or(0, |wait| wait.parse::<u64>().unwrap())
        };
        assert_eq!(one.status, other.status, "{nth}");
        assert!(wait(&one).abs_diff(wait(&other)) <= 1, "{nth}: {one:?} {other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlocked_account_is_not_refused_from_memory() {
    let resilience = Resilience::builder().memory().build().unwrap();
    let app = login.with(resilience.clone());
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "200").await, 429);
    }
    assert_eq!(resilience.unlock("ada").await.unwrap(), 1);
    assert_eq!(status(&app, "ada", "200").await, 200);
    // Without a handler, too.
    let subject = ClientKey::account("ada").unwrap();
    let lockout = resilience.lockout("login", LockoutConfig::new(1, LOCK)).unwrap();
    lockout.begin(&subject).await.unwrap().fail().await.unwrap();
    for _ in 0..3 {
        assert!(lockout.begin(&subject).await.is_err());
    }
    assert!(lockout.unlock(&subject).await.unwrap());
    assert!(lockout.begin(&subject).await.is_ok());
}

/// An operator has unlocked it from another process.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_from_the_store_is_forgotten_within_a_second() {
    let store = ScriptedStore::new();
    store.on_begin_locked("account:", LOCK);
    let app = app(login, over(&store));
    assert_eq!(status(&app, "ada", "200").await, 429);
    store.on_begin(Answer::ok(()));
    assert_eq!(status(&app, "ada", "200").await, 429);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(status(&app, "ada", "200").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_refusals_cost_redis_few_commands() {
    let redis = RedisServer::start();
    let store = RedisStore::new(redis.url()).unwrap();
    eventually("connected", async || store.connections() == 2).await;
    let resilience = Resilience::builder().store(store).build().unwrap();
    let config = LockoutConfig::new(1, LOCK).with_deadline(Duration::from_secs(5));
    let lockout = resilience.lockout("login", config).unwrap();
    let subject = ClientKey::account("ada").unwrap();
    lockout.begin(&subject).await.unwrap().fail().await.unwrap();
    let scripts = || {
        let stats = redis.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = calls.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok());
        calls.sum::<u64>()
    };
    let (before, started) = (scripts(), tokio::time::Instant::now());
    for _ in 0..10_000 {
        assert!(lockout.begin(&subject).await.is_err());
    }
    let seconds = started.elapsed().as_secs();
    assert!(
        scripts() - before <= seconds + 2,
        "{} in {seconds} s",
        scripts() - before
    );
}
