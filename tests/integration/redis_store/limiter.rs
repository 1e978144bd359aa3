//! The limiter's counts, as Redis keeps them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use resilience::{
    policy::Algorithm,
    store::{Quota, RedisStore, Store, Take},
};
use resilience_tests::RedisServer;

use super::{MINUTE, YEAR, connect, connected, quota, soon, take};

const KEY: &str = "rl:{client}:q";

/// Each kind of record: its algorithm, and a limit that makes it store such a record.
const KINDS: [(Algorithm, u32); 4] = [
    (Algorithm::SlidingWindow, 2),
    (Algorithm::SlidingWindow, 200),
    (Algorithm::FixedWindow, 2),
    (Algorithm::TokenBucket, 2),
];

/// What is stored of a large limit: the window's index, the previous count and the current one.
fn counts(server: &RedisServer) -> (u64, u32, u32) {
    let unpack = "return {struct.unpack('>I8I4I4I8', redis.call('GET', KEYS[1]))}";
    let reply = server.cli(&["EVAL", unpack, "1", KEY]);
    let numbers: Vec<u64> = reply.lines().map(|line| line.parse().unwrap()).collect();
    (numbers[0], numbers[1] as u32, numbers[2] as u32)
}

fn store_counts(server: &RedisServer, (index, previous, current): (u64, u32, u32), last: u64) {
    let pack = "return redis.call('SET', KEYS[1], struct.pack('>I8I4I4I8', ARGV[1], ARGV[2], ARGV[3], ARGV[4]))";
    let numbers = [index, previous.into(), current.into(), last].map(|number: u64| number.to_string());
    let [index, previous, current, last] = &numbers;
    server.cli(&["EVAL", pack, "1", KEY, index, previous, current, last]);
}

/// What is stored of a small limit: the time of each unit.
fn log(server: &RedisServer) -> Vec<u64> {
    let unpack = "local log, times = redis.call('GET', KEYS[1]), {} \
                  if string.byte(log) ~= 1 then return redis.error_reply('no log') end \
                  for at = 2, #log, 6 do times[#times + 1] = (struct.unpack('>I6', log, at)) end \
                  return times";
    let reply = server.cli(&["EVAL", unpack, "1", KEY]);
    reply.lines().map(|line| line.parse().unwrap()).collect()
}

fn store_log(server: &RedisServer, times: &[u64]) {
    let pack = "local log = '\\1' \
                for i = 1, #ARGV do log = log .. struct.pack('>I6', ARGV[i]) end \
                return redis.call('SET', KEYS[1], log)";
    let times: Vec<String> = times.iter().map(u64::to_string).collect();
    let mut command = vec!["EVAL", pack, "1", KEY];
    command.extend(times.iter().map(String::as_str));
    server.cli(&command);
}

fn time_to_live(server: &RedisServer) -> i64 {
    server.cli(&["PTTL", KEY]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_expire_with_their_use() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    for (algorithm, limit) in KINDS {
        server.cli(&["FLUSHALL"]);
        let quota = Quota {
            algorithm,
            window: YEAR,
            ..quota(limit)
        };
        for _ in 0..3 {
            take(&store, &quota).await.unwrap();
            let left = time_to_live(&server);
            assert!(left > 0 && left <= YEAR.as_millis() as i64, "{algorithm:?}: {left}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_expiry_is_healed_by_any_request() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    for (algorithm, limit) in KINDS {
        server.cli(&["FLUSHALL"]);
        let quota = Quota {
            algorithm,
            window: YEAR,
            ..quota(limit)
        };
        let client = "client";
        let cost = limit / 2;
        for nth in 0..4 {
            let taken = store
                .take(
                    &[Take {
                        quota: &quota,
                        client,
                        cost,
                    }],
                    soon(),
                )
                .await;
            assert_eq!(taken.unwrap()[0].allowed, nth < 2);
            assert!(time_to_live(&server) > 0);
            server.cli(&["PERSIST", KEY]);
            assert_eq!(time_to_live(&server), -1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_counts_are_none_and_are_overwritten() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    for junk in [
        "",
        "junk",
        "12",
        "twelve bytes",
        "sixteen bytes ok",
        "more than sixteen bytes",
        "7 bytes",
        "thirteen byte",
        "nineteen bytes here",
    ] {
        server.cli(&["SET", KEY, junk]);
        let bucket = Quota {
            algorithm: Algorithm::TokenBucket,
            window: YEAR,
            ..quota(3)
        };
        let taken = take(&store, &bucket).await.unwrap();
        assert_eq!((taken.allowed, taken.remaining), (true, 2), "{junk}");
        assert_eq!(take(&store, &bucket).await.unwrap().remaining, 1, "{junk}");
        server.cli(&["SET", KEY, junk]);
        let taken = take(&store, &quota(3)).await.unwrap();
        assert_eq!((taken.allowed, taken.remaining), (true, 2), "{junk}");
        assert_eq!(log(&server).len(), 1, "{junk}");
        server.cli(&["SET", KEY, junk]);
        let taken = take(&store, &quota(300)).await.unwrap();
        assert_eq!((taken.allowed, taken.remaining), (true, 299), "{junk}");
        let (_, previous, current) = counts(&server);
        assert_eq!((previous, current), (0, 1), "{junk}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_script_counts_nothing_twice_and_loses_nothing() {
    const REQUESTS: u32 = 2_000;
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .max_waiting(REQUESTS as usize)
        .build()
        .unwrap();
    connected(&store).await;
    let done = AtomicBool::new(false);
    let flushing = async {
        let mut connection = redis::Client::open(server.url())
            .unwrap()
            .get_multiplexed_async_connection()
            .await
            .unwrap();
        while !done.load(Ordering::Relaxed) {
            let flush = redis::cmd("SCRIPT").arg("FLUSH").take();
            flush.exec_async(&mut connection).await.unwrap();
        }
    };
    let taking = async {
        let requests = (0..REQUESTS).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, &quota(1_000_000)).await.unwrap() })
        });
        for taken in join_all(requests).await {
            assert!(taken.unwrap().allowed);
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(flushing, taking);
    // A minute's boundary may lie between, which a sliding window carries over.
    let (_, previous, current) = counts(&server);
    assert_eq!(previous + current, REQUESTS);
}

/// The same decision as in exact arithmetic, at any time between the two readings of the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_decides_as_exact_arithmetic_does() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let mut random = fastrand::Rng::with_seed(42);
    let mut refusals = 0;
    for _ in 0..400 {
        let limit = random.u32(101..500);
        let window = random.u64(1_000..10_000_000);
        let (previous, current) = (random.u32(0..=limit), random.u32(0..limit));
        let before = server_millis(&server);
        let index = before / window;
        store_counts(&server, (index, previous, current), before);
        let quota = Quota {
            window: Duration::from_millis(window),
            ..quota(limit)
        };
        let taken = take(&store, &quota).await.unwrap();
        let after = server_millis(&server);
        if after / window != index {
            continue;
        }
        // How many more would pass grows with the time within a window.
        let room = |now: u64| {
            let overlap = (u64::from(previous) * (window - now % window)).div_ceil(window);
            u64::from(limit - current).saturating_sub(overlap)
        };
        let (least, most) = (room(before), room(after));
        assert!(taken.allowed || least == 0);
        assert!(!taken.allowed || most > 0);
        if taken.allowed {
            assert!((least.saturating_sub(1)..=most - 1).contains(&u64::from(taken.remaining)));
        } else {
            refusals += 1;
            assert_eq!(counts(&server), (index, previous, current));
        }
    }
    assert!(refusals > 50);
}

/// The same of logs, with any cost: what is stored afterwards is what had not left, and the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_keeps_a_log_as_a_look_at_every_unit_does() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let mut random = fastrand::Rng::with_seed(42);
    let (mut refusals, mut waits) = (0, 0);
    for _ in 0..400 {
        let limit = random.u32(1..=100);
        let cost = random.u32(1..=limit);
        let window = random.u64(1_000..10_000_000);
        let before = server_millis(&server);
        let mut times: Vec<u64> = (0..random.u32(0..=limit))
            .map(|_| before - random.u64(0..window + window / 4))
            .collect();
        times.sort_unstable();
        store_log(&server, &times);
        let quota = Quota {
            window: Duration::from_millis(window),
            ..quota(limit)
        };
        let client = "client";
        let taken = store
            .take(
                &[Take {
                    quota: &quota,
                    client,
                    cost,
                }],
                soon(),
            )
            .await
            .unwrap()[0];
        let after = server_millis(&server);
        let left = |now: u64| times.iter().filter(|at| **at + window <= now).count();
        let gone = left(before);
        if left(after) != gone {
            continue;
        }
        let kept = &times[gone..];
        let room = limit as usize - kept.len();
        assert_eq!(taken.allowed, room >= cost as usize);
        let stored = log(&server);
        let mut counted = kept.to_vec();
        if taken.allowed {
            let now = *stored.last().unwrap();
            assert!((before..=after).contains(&now));
            counted.resize(kept.len() + cost as usize, now);
            assert_eq!(stored, counted);
            assert_eq!(taken.remaining as usize, room - cost as usize);
        } else {
            refusals += 1;
            assert_eq!(stored, times);
            assert_eq!(taken.remaining as usize, room);
        }
        let surplus = (counted.len() + cost as usize).saturating_sub(limit as usize);
        let until = |at: u64| at + window - after..=at + window - before;
        let wait = taken.retry_after.as_millis() as u64;
        match surplus {
            0 => assert_eq!(wait, 0),
            nth => {
                waits += 1;
                assert!(until(counted[nth - 1]).contains(&wait));
            }
        }
        let reset = taken.reset.as_millis() as u64;
        assert!(until(counted[0]).contains(&reset) || reset == wait);
    }
    assert!(refusals > 50 && waits > 100);
}

/// Records whose times lie ahead of the server's clock, as after a step back of an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_locks_no_client_out_for_longer_than_a_window() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let hour = 60 * 60 * 1_000;
    let ahead = server_millis(&server) + hour;
    store_log(&server, &[ahead, ahead + 1, ahead + 2]);
    let refused = take(&store, &quota(3)).await.unwrap();
    assert_eq!((refused.allowed, refused.retry_after), (false, MINUTE));
    // From then on they count from when the step was seen.
    let now = server_millis(&server);
    let stored = log(&server);
    assert!(
        stored.len() == 3 && stored.iter().all(|at| *at <= now),
        "{stored:?} at {now}"
    );
    assert!((1..=60_000).contains(&time_to_live(&server)));

    let now = server_millis(&server);
    let index = now / 60_000;
    store_counts(&server, (index, 0, 300), now + hour);
    let refused = take(&store, &quota(300)).await.unwrap();
    if !refused.allowed {
        assert!(refused.retry_after <= MINUTE);
        let read = "return (select(4, struct.unpack('>I8I4I4I8', redis.call('GET', KEYS[1]))))";
        let last: u64 = server.cli(&["EVAL", read, "1", KEY]).trim().parse().unwrap();
        assert!((now..now + 60_000).contains(&last));
    }
}

/// The same of buckets: what is stored after a decision is exactly what was stored before and what was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_keeps_a_bucket_as_exact_arithmetic_does() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let mut random = fastrand::Rng::with_seed(42);
    let mut refusals = 0;
    for _ in 0..400 {
        let limit = random.u32(1..50);
        let burst = random.u32(1..=limit);
        let window = random.u64(1_000..10_000_000);
        let before = server_millis(&server);
        // What it lacks is at most what it holds, and seldom a whole number of milliseconds.
        let units = random.u64(0..=u64::from(burst) * window);
        let (full, parts) = (before + units / u64::from(limit), units % u64::from(limit));
        let pack = "return redis.call('SET', KEYS[1], struct.pack('>I8I4', ARGV[1], ARGV[2]))";
        server.cli(&["EVAL", pack, "1", KEY, &full.to_string(), &parts.to_string()]);
        let quota = Quota {
            window: Duration::from_millis(window),
            algorithm: Algorithm::TokenBucket,
            burst,
            ..quota(limit)
        };
        let taken = take(&store, &quota).await.unwrap();
        let after = server_millis(&server);
        let fits = |now: u64| {
            let lacking = (full * u64::from(limit) + parts).saturating_sub(now * u64::from(limit));
            lacking <= u64::from(burst - 1) * window
        };
        assert!(taken.allowed || !fits(before));
        assert!(!taken.allowed || fits(after));
        let unpack = "return {struct.unpack('>I8I4', redis.call('GET', KEYS[1]))}";
        let reply = server.cli(&["EVAL", unpack, "1", KEY]);
        let stored: Vec<u64> = reply.lines().take(2).map(|line| line.parse().unwrap()).collect();
        if !taken.allowed {
            refusals += 1;
            assert_eq!(stored, [full, parts]);
        } else if full > after {
            let units = full * u64::from(limit) + parts + window;
            assert_eq!(stored, [units / u64::from(limit), units % u64::from(limit)]);
        }
    }
    assert!(refusals > 10);
}

fn server_millis(server: &RedisServer) -> u64 {
    let reply = server.cli(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000 + micros.parse::<u64>().unwrap() / 1_000
}
