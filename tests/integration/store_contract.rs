//! What every store promises, checked over each of them.

use std::{sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use futures_util::future::join_all;
use resilience::{
    clock::Clock,
    policy::Algorithm,
    store::{MemoryStore, Probe, Quota, RedisStore, StoreAdmin, StoreErrorKind, Take, Taken},
};
use resilience_tests::{PATIENCE, RedisServer, eventually};
use tokio::time::{Instant, sleep};

/// So long that no boundary between windows is met by chance.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// So short that a test can wait for it.
const SHORT: Duration = Duration::from_millis(250);

const ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];

/// A store, and the way its time passes.
struct Subject {
    store: Arc<dyn StoreAdmin>,
    time: Time,
}

enum Time {
    Moved(Clock),
    /// By the clock of this server, which is what the store goes by.
    Passing(RedisServer),
}

impl Subject {
    async fn memory() -> Self {
        let clock = Clock::manual();
        Self {
            store: Arc::new(MemoryStore::builder().clock(clock.clone()).build()),
            time: Time::Moved(clock),
        }
    }

    async fn redis() -> Self {
        let server = RedisServer::start();
        let store = RedisStore::new(server.url()).unwrap();
        eventually("connected", async || store.is_connected()).await;
        Self {
            store: Arc::new(store),
            time: Time::Passing(server),
        }
    }

    async fn lent_pool() -> Self {
        let server = RedisServer::start();
        let manager = RedisConnectionManager::new(server.url()).unwrap();
        let pool = bb8_redis::bb8::Pool::builder()
            .max_size(4)
            .build(manager)
            .await
            .unwrap();
        Self {
            store: Arc::new(RedisStore::from_pool(pool)),
            time: Time::Passing(server),
        }
    }

    /// Lets this much time pass, and hardly more.
    async fn pass(&self, time: Duration) {
        match &self.time {
            Time::Moved(clock) => clock.advance(time),
            Time::Passing(server) => {
                let until = server_time(server) + time;
                while let Some(rest) = until.checked_sub(server_time(server)).filter(|rest| !rest.is_zero()) {
                    sleep(rest).await;
                }
            }
        }
    }

    async fn identity(&self, api_key: &str) -> Option<String> {
        self.store.identity(api_key, soon()).await.unwrap()
    }

    async fn flag(&self, name: &str) -> Option<bool> {
        self.store.flag(name, soon()).await.unwrap()
    }

    async fn take(&self, quota: &Quota, client: &str) -> Taken {
        self.take_for(1, quota, client).await
    }

    async fn take_for(&self, cost: u32, quota: &Quota, client: &str) -> Taken {
        self.take_all(&[Take { quota, client, cost }]).await[0]
    }

    async fn take_all(&self, takes: &[Take<'_>]) -> Vec<Taken> {
        self.store.take(takes, soon()).await.unwrap()
    }
}

fn server_time(server: &RedisServer) -> Duration {
    let reply = server.cli(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    Duration::from_secs(seconds.parse().unwrap()) + Duration::from_micros(micros.parse().unwrap())
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn quota(id: &str, limit: u32, window: Duration, algorithm: Algorithm) -> Quota {
    Quota {
        id: id.to_owned(),
        limit,
        window,
        algorithm,
        burst: limit,
    }
}

fn yearly(id: &str, limit: u32) -> Quota {
    quota(id, limit, YEAR, Algorithm::SlidingWindow)
}

/// Runs every check over every store.
macro_rules! contract {
    ($($check:ident),* $(,)?) => {
        contract!(@on memory: $($check)*);
        contract!(@on redis: $($check)*);
        contract!(@on lent_pool: $($check)*);
    };
    (@on $subject:ident: $($check:ident)*) => {
        mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::$check(super::Subject::$subject().await).await;
                }
            )*
        }
    };
}

contract! {
    api_keys_belong_to_users,
    flags_are_unset_on_or_off,
    keys_and_flags_have_names_of_their_own,
    admin_refuses_what_no_request_could_present,
    a_quota_counts_down_to_a_refusal,
    a_retry_passes_after_the_wait,
    the_next_request_passes_after_the_wait_that_the_last_one_was_told,
    refused_requests_consume_nothing,
    a_window_of_a_millisecond_passes,
    a_cost_is_taken_whole_or_not_at_all,
    a_costly_retry_passes_after_the_wait,
    a_bucket_lets_its_burst_pass_and_then_what_it_gains,
    a_bucket_of_many_tokens_loses_none_of_them,
    quotas_of_all_algorithms_are_taken_all_or_none,
    several_quotas_are_taken_all_or_none,
    quotas_of_different_clients_are_taken_all_or_none,
    concurrent_requests_admit_exactly_the_limit,
    concurrent_requests_on_two_quotas_admit_the_smaller_one,
    clients_and_quotas_never_meet,
    nothing_is_asked_of_no_quota,
    an_operation_that_is_never_polled_takes_nothing,
    probes_find_a_store_that_serves,
}

async fn api_keys_belong_to_users(subject: Subject) {
    let store = &subject.store;
    assert_eq!(subject.identity("letmein").await, None);
    store.add_api_key("letmein", "user-42").await.unwrap();
    store.add_api_key("schlüssel \u{1f511}", "Jürgen").await.unwrap();
    assert_eq!(subject.identity("letmein").await.as_deref(), Some("user-42"));
    assert_eq!(subject.identity("schlüssel \u{1f511}").await.as_deref(), Some("Jürgen"));
    assert_eq!(subject.identity("LETMEIN").await, None);
    store.add_api_key("letmein", "user-43").await.unwrap();
    assert_eq!(subject.identity("letmein").await.as_deref(), Some("user-43"));
    assert!(store.remove_api_key("letmein").await.unwrap());
    assert!(!store.remove_api_key("letmein").await.unwrap());
    assert_eq!(subject.identity("letmein").await, None);
}

async fn flags_are_unset_on_or_off(subject: Subject) {
    let store = &subject.store;
    assert_eq!(subject.flag("checkout").await, None);
    for on in [true, false, true] {
        store.set_flag("checkout", on).await.unwrap();
        assert_eq!(subject.flag("checkout").await, Some(on));
    }
    assert_eq!(subject.flag("check").await, None);
    assert!(store.clear_flag("checkout").await.unwrap());
    assert!(!store.clear_flag("checkout").await.unwrap());
    assert_eq!(subject.flag("checkout").await, None);
}

async fn keys_and_flags_have_names_of_their_own(subject: Subject) {
    subject.store.set_flag("same", true).await.unwrap();
    subject.store.add_api_key("same", "user-1").await.unwrap();
    assert!(subject.take(&yearly("same", 1), "same").await.allowed);
    assert_eq!(subject.flag("same").await, Some(true));
    assert_eq!(subject.identity("same").await.as_deref(), Some("user-1"));
    assert_eq!(subject.identity("flag:same").await, None);
}

async fn admin_refuses_what_no_request_could_present(subject: Subject) {
    let store = &subject.store;
    let longest = "k".repeat(512);
    store.add_api_key(&longest, "user-1").await.unwrap();
    for (api_key, user) in [("", "user-1"), (&*(longest + "k"), "user-1"), ("letmein", "")] {
        let error = store.add_api_key(api_key, user).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Answered);
    }
}

async fn a_quota_counts_down_to_a_refusal(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 3, YEAR, algorithm);
        for remaining in [2, 1] {
            let taken = subject.take(&quota, "client").await;
            assert_eq!((taken.allowed, taken.remaining), (true, remaining));
            assert_eq!(taken.retry_after, Duration::ZERO);
            assert!(taken.reset > Duration::ZERO && taken.reset <= YEAR);
        }
        let last = subject.take(&quota, "client").await;
        assert_eq!((last.allowed, last.remaining), (true, 0));
        assert!(last.retry_after > Duration::ZERO && last.reset >= last.retry_after);
        for _ in 0..3 {
            let refused = subject.take(&quota, "client").await;
            assert_eq!((refused.allowed, refused.remaining), (false, 0));
            assert!(refused.retry_after > Duration::ZERO && refused.reset >= refused.retry_after);
        }
        assert!(subject.take(&quota, "another client").await.allowed);
    }
}

/// Takes until the quota refuses.
async fn exhaust(subject: &Subject, quota: &Quota) -> Taken {
    // A window may end meanwhile, which makes it take a little longer.
    for _ in 0..100 {
        let taken = subject.take(quota, "client").await;
        if !taken.allowed {
            return taken;
        }
    }
    panic!("{quota:?} never refuses");
}

async fn a_retry_passes_after_the_wait(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 3, SHORT, algorithm);
        for _ in 0..4 {
            let refused = exhaust(&subject, &quota).await;
            assert!(refused.retry_after >= Duration::from_millis(1) && refused.retry_after <= 2 * SHORT);
            subject.pass(refused.retry_after).await;
            assert!(
                subject.take(&quota, "client").await.allowed,
                "{algorithm:?}: {refused:?}"
            );
        }
    }
}

async fn the_next_request_passes_after_the_wait_that_the_last_one_was_told(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 1, SHORT, algorithm);
        let first = subject.take(&quota, "client").await;
        assert_eq!((first.allowed, first.remaining), (true, 0));
        subject.pass(first.retry_after).await;
        assert!(subject.take(&quota, "client").await.allowed, "{algorithm:?}: {first:?}");
    }
}

async fn refused_requests_consume_nothing(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 2, YEAR, algorithm);
        let first = exhaust(&subject, &quota).await;
        for _ in 0..50 {
            let refused = subject.take(&quota, "client").await;
            // If they counted, each would have to wait longer than the one before.
            assert!(!refused.allowed && refused.retry_after <= first.retry_after);
        }
    }
}

async fn a_window_of_a_millisecond_passes(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 1, Duration::from_millis(1), algorithm);
        for _ in 0..5 {
            subject.pass(Duration::from_millis(2)).await;
            let taken = subject.take(&quota, "client").await;
            assert!(taken.allowed && taken.retry_after <= Duration::from_millis(2));
        }
    }
}

async fn a_cost_is_taken_whole_or_not_at_all(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 10, YEAR, algorithm);
        let taken = subject.take_for(4, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 6));
        assert_eq!(taken.retry_after, Duration::ZERO);
        let taken = subject.take_for(4, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 2));
        // Another of this cost would have to wait, though something is left.
        assert!(taken.retry_after > Duration::ZERO && taken.reset >= taken.retry_after);
        let refused = subject.take_for(4, &quota, "client").await;
        assert_eq!((refused.allowed, refused.remaining), (false, 2));
        assert!(refused.retry_after > Duration::ZERO && refused.reset >= refused.retry_after);
        let taken = subject.take_for(2, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 0));
        // Whatever can never be had is all that can be had.
        assert!(subject.take_for(u32::MAX, &quota, "another client").await.allowed);
        assert!(!subject.take(&quota, "another client").await.allowed);
    }
}

async fn a_costly_retry_passes_after_the_wait(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 5, SHORT, algorithm);
        exhaust(&subject, &quota).await;
        for cost in [3, 5, 2] {
            let taken = subject.take_for(cost, &quota, "client").await;
            assert!(taken.retry_after <= 2 * SHORT);
            if !taken.allowed {
                subject.pass(taken.retry_after).await;
                let retried = subject.take_for(cost, &quota, "client").await;
                assert!(retried.allowed, "{algorithm:?} {cost}: {taken:?}");
            }
        }
    }
}

/// `limit` tokens in a year, of which `burst` fit into the bucket.
fn bucket(id: &str, limit: u32, burst: u32) -> Quota {
    Quota {
        burst,
        ..quota(id, limit, YEAR, Algorithm::TokenBucket)
    }
}

async fn a_bucket_lets_its_burst_pass_and_then_what_it_gains(subject: Subject) {
    let slow = bucket("slow", 366, 3);
    for remaining in [2, 1, 0] {
        let taken = subject.take(&slow, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, remaining));
    }
    // One comes a day.
    let day = Duration::from_secs(24 * 60 * 60);
    let refused = subject.take(&slow, "client").await;
    assert!(!refused.allowed && refused.retry_after <= day && refused.retry_after > day - PATIENCE);
    assert!(refused.reset <= 3 * day && refused.reset > 3 * day - PATIENCE);

    // Four in a window of which one fits: each has to wait for a quarter of it, not for its end.
    let quick = Quota {
        window: 4 * SHORT,
        ..bucket("quick", 4, 1)
    };
    for _ in 0..3 {
        let taken = subject.take(&quick, "client").await;
        assert_eq!((taken.allowed, taken.retry_after), (true, SHORT));
        subject.pass(SHORT).await;
    }
}

async fn a_bucket_of_many_tokens_loses_none_of_them(subject: Subject) {
    // The products of these numbers are beyond what Lua can count.
    let quota = bucket("vast", u32::MAX, u32::MAX);
    let first = subject.take_for(u32::MAX - 1, &quota, "client").await;
    // Some tokens come while the next request is on its way: one each 7 ms.
    assert_eq!((first.allowed, first.remaining), (true, 1));
    assert!(subject.take(&quota, "client").await.allowed);
    let refused = subject.take_for(u32::MAX, &quota, "client").await;
    assert!(!refused.allowed && refused.retry_after <= YEAR && refused.retry_after > YEAR - PATIENCE);
}

async fn quotas_of_all_algorithms_are_taken_all_or_none(subject: Subject) {
    let quotas = ALGORITHMS.map(|algorithm| quota(&format!("{algorithm:?}"), 10, YEAR, algorithm));
    for (tight, refuses) in quotas.iter().enumerate() {
        let client = &*refuses.id;
        assert!(subject.take_for(9, refuses, client).await.allowed);
        // In every order, and each at a cost of its own.
        for first in 0..quotas.len() {
            let mut order: Vec<usize> = (0..quotas.len()).collect();
            order.rotate_left(first);
            let takes: Vec<Take<'_>> = order
                .iter()
                .map(|&at| Take {
                    quota: &quotas[at],
                    client,
                    cost: 2 + at as u32,
                })
                .collect();
            for (&at, taken) in order.iter().zip(subject.take_all(&takes).await) {
                assert_eq!(taken.allowed, at != tight);
                assert_eq!(taken.remaining, if at == tight { 1 } else { 10 });
            }
        }
    }
    let takes: Vec<Take<'_>> = (1..)
        .zip(&quotas)
        .map(|(cost, quota)| Take {
            quota,
            client: "client",
            cost,
        })
        .collect();
    let remaining: Vec<u32> = subject
        .take_all(&takes)
        .await
        .iter()
        .map(|taken| taken.remaining)
        .collect();
    assert_eq!(remaining, [9, 8, 7]);
}

async fn several_quotas_are_taken_all_or_none(subject: Subject) {
    let (burst, daily) = (yearly("burst", 2), yearly("daily", 5));
    let both = [&burst, &daily].map(|quota| Take {
        quota,
        client: "client",
        cost: 1,
    });
    for remaining in [(1, 4), (0, 3)] {
        let taken = subject.take_all(&both).await;
        assert!(taken.iter().all(|taken| taken.allowed));
        assert_eq!((taken[0].remaining, taken[1].remaining), remaining);
    }
    for _ in 0..3 {
        let taken = subject.take_all(&both).await;
        assert!(!taken[0].allowed && taken[1].allowed);
        assert_eq!((taken[0].remaining, taken[1].remaining), (0, 3));
        assert_eq!(taken[1].retry_after, Duration::ZERO);
    }
    // And the other way round: the one that refuses stands last.
    let reversed = [both[1], both[0]];
    let taken = subject.take_all(&reversed).await;
    assert!(taken[0].allowed && !taken[1].allowed);
    assert_eq!(subject.take(&daily, "client").await.remaining, 2);
}

async fn quotas_of_different_clients_are_taken_all_or_none(subject: Subject) {
    let (per_client, global) = (yearly("per client", 1), yearly("global", 3));
    let takes = |client| {
        [
            Take {
                quota: &per_client,
                client,
                cost: 1,
            },
            Take {
                quota: &global,
                client: "everybody",
                cost: 1,
            },
        ]
    };
    for client in ["a", "b"] {
        assert!(subject.take_all(&takes(client)).await.iter().all(|taken| taken.allowed));
        let again = subject.take_all(&takes(client)).await;
        assert!(!again[0].allowed && again[1].allowed);
    }
    assert_eq!(subject.take_all(&takes("c")).await[1].remaining, 0);
    let refused = subject.take_all(&takes("d")).await;
    assert!(refused[0].allowed && !refused[1].allowed);
    assert_eq!(refused[0].remaining, 1);
}

async fn concurrent_requests_admit_exactly_the_limit(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 50, YEAR, algorithm);
        let taken = concurrently(&subject, &[&quota], 200).await;
        assert_eq!(taken.iter().filter(|taken| taken[0].allowed).count(), 50);
        let mut remaining: Vec<u32> = taken
            .iter()
            .filter(|taken| taken[0].allowed)
            .map(|t| t[0].remaining)
            .collect();
        remaining.sort_unstable();
        assert_eq!(remaining, (0..50).collect::<Vec<_>>());
    }
}

async fn concurrent_requests_on_two_quotas_admit_the_smaller_one(subject: Subject) {
    let (small, large) = (yearly("small", 30), yearly("large", 50));
    let taken = concurrently(&subject, &[&large, &small], 200).await;
    let admitted = taken
        .iter()
        .filter(|taken| taken.iter().all(|taken| taken.allowed))
        .count();
    assert_eq!(admitted, 30);
    assert_eq!(subject.take(&large, "client").await.remaining, 19);
}

/// As many requests at the same time, each on a task of its own.
async fn concurrently(subject: &Subject, quotas: &[&Quota], requests: usize) -> Vec<Vec<Taken>> {
    let requests = (0..requests).map(|_| {
        let store = Arc::clone(&subject.store);
        let quotas: Vec<Quota> = quotas.iter().map(|&quota| quota.clone()).collect();
        tokio::spawn(async move {
            let client = "client";
            let takes: Vec<Take<'_>> = quotas.iter().map(|quota| Take { quota, client, cost: 1 }).collect();
            store.take(&takes, soon()).await.unwrap()
        })
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}

async fn clients_and_quotas_never_meet(subject: Subject) {
    let ids = ["q", "}:q", "a}:q", "%7D:q", ":", ""];
    let clients = [
        "a", "a}", "a}:q", "a}:a", "{a", "{a}", "}:", "%7D", "a\0", "a\r\n", "A", "ä", "", "rl:{a}:q", "*",
    ];
    for id in ids {
        let quota = yearly(id, 1);
        for client in clients {
            assert!(subject.take(&quota, client).await.allowed, "{id:?} {client:?}");
        }
    }
    for id in ids {
        let quota = yearly(id, 1);
        for client in clients {
            assert!(!subject.take(&quota, client).await.allowed, "{id:?} {client:?}");
        }
    }
}

async fn nothing_is_asked_of_no_quota(subject: Subject) {
    assert_eq!(subject.take_all(&[]).await, []);
}

async fn an_operation_that_is_never_polled_takes_nothing(subject: Subject) {
    let quota = yearly("q", 2);
    let takes = [Take {
        quota: &quota,
        client: "client",
        cost: 1,
    }];
    drop(subject.store.take(&takes, soon()));
    assert_eq!(subject.take(&quota, "client").await.remaining, 1);
}

async fn probes_find_a_store_that_serves(subject: Subject) {
    for kind in [Probe::Write, Probe::Read] {
        subject.store.probe(kind, soon()).await.unwrap();
    }
}
