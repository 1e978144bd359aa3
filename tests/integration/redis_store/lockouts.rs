//! Tallies in Redis: how they lie there, and what they survive.

use std::time::Duration;

use futures_util::future::join_all;
use resilience::store::{Attempt, Begun, Lockout, RedisStore, Settle, Settlement, Store, StoreError, StoreErrorKind};
use resilience_tests::RedisServer;
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

async fn begin(store: &RedisStore, lockout: &Lockout, id: u64) -> Result<Begun, StoreError> {
    let attempt = Attempt {
        lockout,
        subject: "ada",
        id,
    };
    Ok(store.begin_attempts(&[attempt], soon()).await?[0])
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
        .filter(|begun| begun.as_ref().unwrap().allowed)
        .count();
    assert_eq!(allowed, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tallies_expire_with_what_they_say() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    begin(&store, &login, 1).await.unwrap();
    let attempts = time_to_live(&server);
    assert!(attempts > 59 * 60_000 && attempts <= 60 * 60_000, "{attempts}");
    begin(&store, &login, 2).await.unwrap();
    // The lock, and then as long again until it is forgotten.
    let locked = time_to_live(&server);
    assert!(locked > 119 * 60_000 && locked <= 120 * 60_000, "{locked}");
    let attempt = Attempt {
        lockout: &login,
        subject: "ada",
        id: 2,
    };
    let settle = |settle| [Settlement { attempt, settle }];
    store.settle_attempts(&settle(Settle::GiveBack), soon()).await.unwrap();
    assert!(time_to_live(&server) <= attempts);
    store.settle_attempts(&settle(Settle::Clear), soon()).await.unwrap();
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_expiry_is_healed_by_any_attempt() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let login = login(2);
    for id in 0..4 {
        assert_eq!(begin(&store, &login, id).await.unwrap().allowed, id < 2);
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
    ] {
        server.cli(&["SET", KEY, junk]);
        assert!(begin(&store, &login, 1).await.unwrap().allowed, "{junk}");
        assert!(begin(&store, &login, 2).await.unwrap().allowed, "{junk}");
        assert!(!begin(&store, &login, 3).await.unwrap().allowed, "{junk}");
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
        "redis.call('SET', KEYS[1], struct.pack('>I4I8I8', 1, 4e15, 8e15))",
        "1",
        KEY,
    ]);
    let refused = begin(&store, &login(2), 1).await.unwrap();
    assert!(!refused.allowed && refused.retry_after <= HOUR, "{refused:?}");
    // And the wait that it was told gets shorter from now on.
    sleep(Duration::from_millis(20)).await;
    let later = begin(&store, &login(2), 2).await.unwrap();
    assert!(later.retry_after < refused.retry_after, "{later:?}");
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
    assert!(
        begun
            .iter()
            .all(|begun| begun.as_ref().is_ok_and(|begun| begun.allowed))
    );
    assert_eq!(store.lockout_status(&login, "ada", soon()).await.unwrap().attempts, 300);
}

/// The same steps in both stores say the same: the script mirrors the arithmetic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_decides_as_the_arithmetic_does() {
    let server = RedisServer::start();
    let redis = connect(server.url()).await;
    let memory = resilience::store::MemoryStore::new();
    let mut random = fastrand::Rng::with_seed(7);
    let lockouts: Vec<_> = (1..4).map(|attempts| login(attempts * 2)).collect();
    for (nth, lockout) in lockouts.iter().enumerate() {
        let subject = format!("ada-{nth}");
        for id in 0..200 {
            let attempt = |id| Attempt {
                lockout,
                subject: &subject,
                id,
            };
            match random.u8(..8) {
                0 => {
                    let settle = [Settlement {
                        attempt: attempt(id),
                        settle: Settle::Clear,
                    }];
                    redis.settle_attempts(&settle, soon()).await.unwrap();
                    memory.settle_attempts(&settle, soon()).await.unwrap();
                }
                1 | 2 => {
                    let settle = [Settlement {
                        attempt: attempt(id.saturating_sub(random.u64(..6))),
                        settle: Settle::GiveBack,
                    }];
                    redis.settle_attempts(&settle, soon()).await.unwrap();
                    memory.settle_attempts(&settle, soon()).await.unwrap();
                }
                _ => {
                    let (one, other) = (
                        redis.begin_attempts(&[attempt(id)], soon()).await.unwrap(),
                        memory.begin_attempts(&[attempt(id)], soon()).await.unwrap(),
                    );
                    assert_eq!(
                        (one[0].allowed, one[0].remaining),
                        (other[0].allowed, other[0].remaining)
                    );
                }
            }
            let (one, other) = (
                redis.lockout_status(lockout, &subject, soon()).await.unwrap(),
                memory.lockout_status(lockout, &subject, soon()).await.unwrap(),
            );
            assert_eq!((one.attempts, one.locks), (other.attempts, other.locks));
            assert_eq!(one.locked_for.is_some(), other.locked_for.is_some());
        }
    }
}
