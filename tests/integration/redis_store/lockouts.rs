//! Tallies in Redis: how they lie there, and what they survive.

use std::time::Duration;

use futures_util::future::join_all;
use resilience::store::{
    Attempt, Begun, Lockout, LockoutStatus, RedisStore, Refused, Settle, Settlement, Store, StoreError, StoreErrorKind,
};
use resilience_tests::{RedisServer, eventually};
use tokio::{task::yield_now, time::sleep};

use super::{connect, soon};

const KEY: &str = "lock:{ada}:login";
const HOUR: Duration = Duration::from_secs(60 * 60);

fn login(attempts: u32) -> Lockout {
    Lockout {
        id: "login".to_owned(),
        attempts,
        durations: vec![HOUR],
    }
}

const fn attempt<'a>(lockout: &'a Lockout, subject: &'a str, id: u64, origin: u64) -> Attempt<'a> {
    Attempt {
        lockout,
        subject,
        id,
        origin,
    }
}

async fn begin(store: &RedisStore, lockout: &Lockout, id: u64) -> Result<Begun, StoreError> {
    let attempt = attempt(lockout, "ada", id, 1);
    Ok(store.begin_attempts(&[attempt], soon()).await?[0])
}

async fn settle(store: &RedisStore, lockout: &Lockout, id: u64, settle: Settle) {
    let attempt = attempt(lockout, "ada", id, 1);
    let settled = [Settlement { attempt, settle }];
    store.settle_attempts(&settled, soon()).await.unwrap();
}

/// An attempt that fails if it may begin; whether it may.
async fn guess(store: &RedisStore, lockout: &Lockout, id: u64) -> bool {
    let allowed = begin(store, lockout, id).await.unwrap().is_allowed();
    if allowed {
        settle(store, lockout, id, Settle::Fail).await;
    }
    allowed
}

fn wait(begun: &Begun) -> Duration {
    begun.refused.map_or(Duration::ZERO, |refused| refused.retry_after())
}

fn time_to_live(server: &RedisServer) -> i64 {
    server.cli(&["PTTL", KEY]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_let_five_of_two_hundred_begin() {
    let server = RedisServer::start();
    let stores = [connect(server.url()).await, connect(server.url()).await];
    let login = login(5);
    let begun = join_all((0..200).map(|id| begin(&stores[id as usize % 2], &login, id))).await;
    let allowed = begun
        .into_iter()
        .filter(|begun| begun.as_ref().unwrap().is_allowed())
        .count();
    assert_eq!(allowed, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tallies_expire_with_what_they_say() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    let minutes = |millis: i64| u64::try_from(millis).unwrap().div_ceil(60_000);
    // The lease of 30 s, and the failure that it ends in.
    begin(&store, &login, 1).await.unwrap();
    let pending = time_to_live(&server);
    assert!((60 * 60_000..=60 * 60_000 + 30_000).contains(&pending), "{pending}");
    settle(&store, &login, 1, Settle::Fail).await;
    assert_eq!(minutes(time_to_live(&server)), 60);
    // The lease, the lock that may come of it, and as long again until that is forgotten.
    begin(&store, &login, 2).await.unwrap();
    assert_eq!(minutes(time_to_live(&server)), 121);
    settle(&store, &login, 2, Settle::Fail).await;
    assert_eq!(minutes(time_to_live(&server)), 120);
    settle(&store, &login, 2, Settle::GiveBack).await;
    assert_eq!(minutes(time_to_live(&server)), 60);
    settle(&store, &login, 7, Settle::Clear).await;
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_expiry_is_healed_by_any_attempt() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    for id in 0..4 {
        assert_eq!(guess(&store, &login, id).await, id < 2);
        assert!(time_to_live(&server) > 0);
        server.cli(&["PERSIST", KEY]);
        assert_eq!(time_to_live(&server), -1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_tallies_are_none_and_another_type_is_an_answer() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    for junk in [
        "",
        "junk",
        "more than twenty bytes",
        "more than twenty bytes and sixteen",
        // The length of a record with one attempt, of another version.
        &"3".repeat(31 + 24),
    ] {
        server.cli(&["SET", KEY, junk]);
        assert!(guess(&store, &login, 1).await, "{junk}");
        assert!(guess(&store, &login, 2).await, "{junk}");
        assert!(!guess(&store, &login, 3).await, "{junk}");
    }
    server.cli(&["DEL", KEY]);
    server.cli(&["LPUSH", KEY, "a list"]);
    let error = begin(&store, &login, 1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
}

/// Far in the future, as after a clock of the server that has stepped back by a year.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_clock_stepped_back_locks_nobody_for_longer() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    server.cli(&[
        "EVAL",
        "redis.call('SET', KEYS[1], struct.pack('>BI4I8I8I8I2', 2, 1, 4e15, 8e15, 1, 0))",
        "1",
        KEY,
    ]);
    let refused = begin(&store, &login(2), 1).await.unwrap();
    assert!(
        matches!(refused.refused, Some(Refused::Locked { .. })) && wait(&refused) <= HOUR,
        "{refused:?}"
    );
    // And the wait that it was told gets shorter from now on.
    sleep(Duration::from_millis(20)).await;
    let later = begin(&store, &login(2), 2).await.unwrap();
    assert!(wait(&later) < wait(&refused), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_script_counts_no_attempt_twice() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(1_000);
    let forget = async {
        for _ in 0..50 {
            server.cli(&["SCRIPT", "FLUSH"]);
            yield_now().await;
        }
    };
    let (begun, ()) = tokio::join!(join_all((0..300).map(|id| begin(&store, &login, id))), forget);
    assert!(begun.iter().all(|begun| begun.as_ref().is_ok_and(Begun::is_allowed)));
    assert_eq!(store.lockout_status(&login, "ada", soon()).await.unwrap().pending, 300);
}

/// Records of the first format: locks, two times, and for each attempt its time and its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_the_first_format_counts_as_nothing() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(50);
    for attempts in 0..40 {
        let entries = "struct.pack('>I8I8', now, 1)".to_owned();
        let script = format!(
            "local now = redis.call('TIME')[1] * 1000 \
             redis.call('SET', KEYS[1], struct.pack('>I4I8I8', 1, now + 1e6, now + 2e6) .. string.rep({entries}, {attempts}))"
        );
        server.cli(&["EVAL", &script, "1", KEY]);
        let status = store.lockout_status(&login, "ada", soon()).await.unwrap();
        assert_eq!(status, LockoutStatus::default(), "{attempts}");
        assert_eq!(begin(&store, &login, 1).await.unwrap().remaining, 49, "{attempts}");
    }
}

/// An instance that has crashed settles nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_never_settled_fails_when_its_lease_ends() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    // One lease has ended, the other ends in a moment.
    server.cli(&[
        "EVAL",
        "local now = redis.call('TIME')[1] * 1000 \
         redis.call('SET', KEYS[1], struct.pack('>BI4I8I8I8I2', 2, 0, 0, 0, 0, 0) \
         .. struct.pack('>I8I8I8', now - 31000, 1, 1) .. struct.pack('>I8I8I8', now - 28000, 2, 1))",
        "1",
        KEY,
    ]);
    let status = store.lockout_status(&login, "ada", soon()).await.unwrap();
    assert_eq!((status.attempts, status.pending), (1, 1));
    let refused = begin(&store, &login, 3).await.unwrap();
    assert!(matches!(refused.refused, Some(Refused::UnderWay { .. })), "{refused:?}");
    eventually("the lock begins", async || {
        let refused = begin(&store, &login, 3).await.unwrap();
        matches!(refused.refused, Some(Refused::Locked { .. }))
    })
    .await;
    // It has succeeded after all.
    settle(&store, &login, 2, Settle::Clear).await;
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
}

/// The same steps in both stores have the same results: the script mirrors the arithmetic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_decides_as_the_arithmetic_does() {
    let server = RedisServer::start();
    let redis = connect(server.url()).await;
    let memory = resilience::store::MemoryStore::new();
    let mut random = fastrand::Rng::with_seed(7);
    let lockouts: Vec<_> = (1..4).map(|attempts| login(attempts * 2)).collect();
    for (nth, lockout) in lockouts.iter().enumerate() {
        let subject = format!("ada-{nth}");
        let mut origins = Vec::new();
        for id in 0..400_u64 {
            origins.push(random.u64(0..4));
            if random.u8(..8) < 4 {
                let back = id.saturating_sub(random.u64(..6));
                let settle = *random
                    .choice([Settle::Fail, Settle::Fail, Settle::GiveBack, Settle::Clear].iter())
                    .unwrap();
                let attempt = attempt(lockout, &subject, back, origins[back as usize]);
                let settled = [Settlement { attempt, settle }];
                redis.settle_attempts(&settled, soon()).await.unwrap();
                memory.settle_attempts(&settled, soon()).await.unwrap();
            } else {
                let attempts = [attempt(lockout, &subject, id, origins[id as usize])];
                let one = redis.begin_attempts(&attempts, soon()).await.unwrap()[0];
                let other = memory.begin_attempts(&attempts, soon()).await.unwrap()[0];
                let kind = |begun: Begun| begun.refused.map(|refused| matches!(refused, Refused::Locked { .. }));
                assert_eq!((kind(one), one.remaining), (kind(other), other.remaining));
            }
            let (one, other) = (
                redis.lockout_status(lockout, &subject, soon()).await.unwrap(),
                memory.lockout_status(lockout, &subject, soon()).await.unwrap(),
            );
            let numbers = |status: LockoutStatus| (status.attempts, status.pending, status.locks);
            assert_eq!(numbers(one), numbers(other));
            assert_eq!(one.locked_for.is_some(), other.locked_for.is_some());
            if random.u8(..40) == 0 {
                redis.unlock(lockout, &subject, soon()).await.unwrap();
                memory.unlock(lockout, &subject, soon()).await.unwrap();
            }
        }
    }
}
