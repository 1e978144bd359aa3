//! Attempts that are still being checked: no failures, and never more than the limit.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use resilience::{Resilience, store::RedisStore};
use resilience_tests::{RedisServer, eventually};
use tokio::{sync::Semaphore, time::sleep};

use super::*;
use crate::chain::ms;

/// Takes a while to check a password.
#[resilient(lockout(5, "15m", key = account("json:/username"), deadline = "20s"))]
#[handler]
async fn slow(body: String) -> poem::Result<Response> {
    sleep(ms(50)).await;
    answer(&body)
}

#[tokio::test(start_paused = true)]
async fn right_logins_at_once_lock_nothing_and_wait_a_second_at_most() {
    for at_once in [6, 200] {
        let resilience = Resilience::builder().memory().build().unwrap();
        let app = poem::EndpointExt::with(slow, resilience);
        let logins = join_all((0..at_once).map(|_| ask(&app, attempt("ada", "200")))).await;
        let (right, busy): (Vec<_>, Vec<_>) = logins.into_iter().partition(|answered| answered.status == 200);
        assert_eq!(right.len(), 5);
        for refused in &busy {
            assert_eq!(refused.summary(), (429, "attempts_under_way".into()));
            assert_eq!(refused.lines(), ["retry-after: 1"]);
        }
        assert_eq!(
            busy[0].json()["message"],
            "Other attempts of this account or address are being checked. Retry after 1 s."
        );
        // No lock, and all places are free again.
        let logins = join_all((0..5).map(|_| ask(&app, attempt("ada", "200")))).await;
        assert!(logins.iter().all(|answered| answered.status == 200), "{at_once}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_sixth_wrong_guess_is_told_the_locks_wait() {
    let app = app(slow, Resilience::builder().memory());
    for _ in 0..5 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    let locked = ask(&app, attempt("ada", "401")).await;
    assert_eq!(locked.summary(), (429, "locked_out".into()));
    assert_eq!(locked.lines(), ["retry-after: 900"]);
}

/// The lock begins at the failure, and not when the attempt began.
#[tokio::test(start_paused = true)]
async fn guesses_at_once_lock_when_they_have_failed() {
    let app = app(slow, Resilience::builder().memory());
    let guesses = join_all((0..200).map(|_| ask(&app, attempt("ada", "401")))).await;
    let count = |status: u16| guesses.iter().filter(|guess| guess.status == status).count();
    assert_eq!((count(401), count(429)), (5, 195));
    assert_eq!(ask(&app, attempt("ada", "200")).await.code(), "locked_out");
}

static GATE: Semaphore = Semaphore::const_new(0);
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// Answers when the test lets it.
#[resilient(lockout(2, "15m", key = account("json:/username"), deadline = "20s"))]
#[handler]
async fn gated(body: String) -> poem::Result<Response> {
    REACHED.fetch_add(1, Ordering::SeqCst);
    GATE.acquire().await.unwrap().forget();
    answer(&body)
}

/// Two instances, one Redis: one instance sees the attempts that are under way at the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_under_way_are_seen_by_other_instances() {
    let redis = RedisServer::start();
    let mut apps = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::new(redis.url()).unwrap();
        eventually("connected", async || store.connections() == 2).await;
        apps.push(app(gated, Resilience::builder().store(store)));
    }
    let logins = join_all((0..2).map(|_| ask(&apps[0], attempt("ada", "200"))));
    let other = async {
        eventually("both are under way", async || REACHED.load(Ordering::SeqCst) == 2).await;
        let refused = ask(&apps[1], attempt("ada", "200")).await;
        assert_eq!(refused.summary(), (429, "attempts_under_way".into()));
        GATE.add_permits(3);
    };
    let (logins, ()) = tokio::join!(logins, other);
    assert!(logins.iter().all(|answered| answered.status == 200), "{logins:?}");
    assert_eq!(status(&apps[1], "ada", "200").await, 200);
}
