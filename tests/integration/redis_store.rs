//! What only a store outside of the process goes through: outages, hostile contents, and the way back.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::{RedisConnectionManager, bb8};
use resilience::{
    policy::Algorithm,
    store::{ApiKeys, KeyLayout, Probe, Quota, RedisStore, Store, StoreAdmin, StoreError, StoreErrorKind, Take, Taken},
};
use resilience_tests::{PATIENCE, Proxy, RedisServer, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::{Instant, error::Elapsed, timeout_at},
};

const MINUTE: Duration = Duration::from_secs(60);
/// So long that no boundary between windows is met by chance.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn quota(limit: u32) -> Quota {
    Quota {
        id: "q".to_owned(),
        limit,
        window: MINUTE,
        algorithm: Algorithm::SlidingWindow,
    }
}

async fn take(store: &RedisStore, quota: &Quota) -> Result<Taken, StoreError> {
    let client = "client";
    store
        .take(&[Take { quota, client }], soon())
        .await
        .map(|taken| taken[0])
}

async fn connected(store: &RedisStore) {
    eventually("two connections serve", async || store.connections() == 2).await;
}

/// A store whose first connections serve already.
async fn connect(url: String) -> RedisStore {
    let store = RedisStore::new(url).unwrap();
    connected(&store).await;
    store
}

/// An operation as the chain runs it: with a deadline of its own, at which it is dropped.
async fn within<F: Future>(time: Duration, operation: impl FnOnce(Instant) -> F) -> Result<F::Output, Elapsed> {
    let deadline = Instant::now() + time;
    timeout_at(deadline, operation(deadline)).await
}

/// The ids of our connections, as the server knows them.
fn client_ids(server: &RedisServer) -> Vec<String> {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
    let ours = list.lines().filter(|line| !line.contains("cmd=client|list"));
    ours.filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

mod outage {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn killed_and_restarted_it_serves_again_without_traffic_or_dead_connections() {
        let mut server = RedisServer::start();
        let store = connect(server.url()).await;
        server.kill();
        eventually("the loss is noticed without traffic", async || !store.is_connected()).await;
        server.restart();
        connected(&store).await;
        // No dead connection is handed out, whichever is on top.
        for _ in 0..500 {
            assert!(take(&store, &quota(1_000)).await.unwrap().allowed);
        }
        eventually("the server sees two", async || client_ids(&server).len() == 2).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn restarted_under_traffic_no_operation_fails_after_the_first_that_succeeds() {
        let mut server = RedisServer::start();
        let store = connect(server.url()).await;
        server.kill();
        let error = loop {
            if let Err(error) = store.flag("checkout", soon()).await {
                break error;
            }
        };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        server.restart();
        eventually("an operation succeeds", async || {
            store.flag("checkout", soon()).await.is_ok()
        })
        .await;
        for _ in 0..500 {
            store.flag("checkout", soon()).await.unwrap();
        }
        connected(&store).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn operations_fail_at_once_and_say_why() {
        let mut server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .checkout_timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        connected(&store).await;
        server.kill();
        // None of them may wait for its checkout's minute.
        for _ in 0..20 {
            let outcome = within(PATIENCE, |deadline| store.identity("letmein", deadline)).await;
            let error = outcome.expect("it does not wait").unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        }
        // An attempt that was under way may have been reset; those that follow are refused.
        let address = format!("127.0.0.1:{}", server.port());
        eventually("the refusal is named", async || {
            let error = store.identity("letmein", soon()).await.unwrap_err();
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            error.to_string().contains(&address) && cause.contains("refused")
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn booted_while_it_is_down_it_serves_when_it_comes_up() {
        let mut server = RedisServer::prepare(&[]);
        let store = RedisStore::new(server.url()).unwrap();
        let error = store.flag("checkout", soon()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(!store.is_connected());
        server.restart();
        connected(&store).await;
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_probe_does_not_wait_for_the_next_attempt() {
        let mut server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .reconnect_cap(Duration::from_secs(60 * 60))
            .build()
            .unwrap();
        connected(&store).await;
        server.kill();
        eventually("the loss is noticed", async || !store.is_connected()).await;
        // Failed probes stretch the back-off, by far beyond this test's patience.
        for _ in 0..14 {
            assert!(store.probe(Probe::Write, soon()).await.is_err());
        }
        server.restart();
        assert!(store.flag("checkout", soon()).await.is_err());
        store.probe(Probe::Write, soon()).await.unwrap();
        store.flag("checkout", soon()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn attempts_to_connect_back_off() {
        // Hangs up on whoever comes, and counts them.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let store = RedisStore::builder(url)
            .reconnect_cap(Duration::from_secs(60))
            .build()
            .unwrap();
        let asked = Arc::new(AtomicBool::new(true));
        let asking = tokio::spawn({
            let (store, asked) = (store.clone(), Arc::clone(&asked));
            async move {
                while asked.load(Ordering::Relaxed) {
                    assert!(store.flag("checkout", soon()).await.is_err());
                    tokio::task::yield_now().await;
                }
            }
        });
        // The first two come together, and each later one no sooner than half of 100, 200, 400, 800 ms after the last.
        let mut attempts = Vec::new();
        while attempts.len() < 6 {
            let connection = listener.accept().await.unwrap();
            attempts.push(Instant::now());
            drop(connection);
        }
        asked.store(false, Ordering::Relaxed);
        asking.await.unwrap();
        assert!(attempts[5] - attempts[0] >= Duration::from_millis(50 + 100));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_drops_every_connection_after_its_handshake_is_not_stormed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let _store = RedisStore::new(url).unwrap();
        // Two at once for each loss, and two more each time that the pool is brought back to its size.
        let mut attempts = Vec::new();
        while attempts.len() < 16 {
            let (mut connection, _) = listener.accept().await.unwrap();
            attempts.push(Instant::now());
            // HELLO and two CLIENT SETINFO.
            _ = connection.read(&mut [0; 1_024]).await;
            _ = connection.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n").await;
        }
        assert!(attempts[15] - attempts[0] >= Duration::from_millis(300));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frozen_it_is_given_up_and_thawed_it_serves_again() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        server.freeze();
        let mut unanswered = 0;
        while store.is_connected() {
            let outcome = within(Duration::from_millis(20), |deadline| store.flag("checkout", deadline)).await;
            assert!(outcome.is_err(), "{outcome:?}");
            unanswered += 1;
        }
        // Three in a row for each of the two; one that found the pool being swept did not get to ask.
        assert!(unanswered >= 6);
        // New connections are accepted, by the kernel, and go no further.
        let outcome = within(PATIENCE, |deadline| store.flag("checkout", deadline)).await;
        assert_eq!(
            outcome.expect("the checkout gives up").unwrap_err().kind(),
            StoreErrorKind::Unavailable
        );
        server.thaw();
        connected(&store).await;
        for _ in 0..100 {
            store.flag("checkout", soon()).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn callers_that_hang_up_early_leave_the_connection_alone() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        let before = client_ids(&server);
        server.freeze();
        for _ in 0..10 {
            let early = Instant::now() + Duration::from_millis(5);
            assert!(timeout_at(early, store.flag("checkout", soon())).await.is_err());
        }
        assert_eq!(store.connections(), 2);
        server.thaw();
        // And the replies that nobody waited for are not taken for others'.
        store.set_flag("on", true).await.unwrap();
        for _ in 0..100 {
            assert_eq!(store.flag("on", soon()).await.unwrap(), Some(true));
            assert_eq!(store.flag("unset", soon()).await.unwrap(), None);
        }
        assert_eq!(client_ids(&server), before);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cut_connections_are_replaced_at_once() {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.port()).await;
        let store = connect(proxy.url()).await;
        for _ in 0..5 {
            let accepted = proxy.accepted();
            proxy.cut().await;
            eventually("both are replaced", async || proxy.accepted() >= accepted + 2).await;
            connected(&store).await;
            for _ in 0..50 {
                store.flag("checkout", soon()).await.unwrap();
            }
        }
        eventually("the server sees two", async || client_ids(&server).len() == 2).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_black_hole_costs_no_more_than_the_deadline_and_heals() {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.port()).await;
        let store = connect(proxy.url()).await;
        proxy.blackhole().await;
        while store.is_connected() {
            let outcome = within(Duration::from_millis(20), |deadline| store.flag("checkout", deadline)).await;
            assert!(!matches!(outcome, Ok(Ok(_))));
        }
        proxy.refuse().await;
        assert!(store.flag("checkout", soon()).await.is_err());
        proxy.heal().await;
        connected(&store).await;
        store.flag("checkout", soon()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn slow_is_not_down() {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.port()).await;
        let store = connect(proxy.url()).await;
        proxy.delay(Duration::from_millis(30)).await;
        for _ in 0..5 {
            store.flag("checkout", soon()).await.unwrap();
        }
        assert_eq!(proxy.accepted(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn demoted_it_takes_no_writes_and_its_connections_are_replaced() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        store.add_api_key("letmein", "user-42").await.unwrap();
        let before = client_ids(&server);
        server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        // It still answers, to reads and to a PING.
        assert_eq!(
            store.identity("letmein", soon()).await.unwrap().as_deref(),
            Some("user-42")
        );
        assert_eq!(server.cli(&["PING"]), "PONG");
        for _ in 0..3 {
            let error = take(&store, &quota(10)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        for kind in [Probe::Write, Probe::Read] {
            let error = store.probe(kind, soon()).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        server.cli(&["REPLICAOF", "NO", "ONE"]);
        store.probe(Probe::Write, soon()).await.unwrap();
        store.probe(Probe::Read, soon()).await.unwrap();
        assert!(take(&store, &quota(10)).await.unwrap().allowed);
        connected(&store).await;
        assert!(client_ids(&server).iter().all(|id| !before.contains(id)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn out_of_memory_it_takes_no_writes_and_goes_on_reading() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        store.add_api_key("letmein", "user-42").await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = take(&store, &quota(10)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(store.probe(Probe::Write, soon()).await.is_err());
        assert_eq!(
            store.identity("letmein", soon()).await.unwrap().as_deref(),
            Some("user-42")
        );
        store.probe(Probe::Read, soon()).await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(take(&store, &quota(10)).await.unwrap().allowed);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_wrong_password_is_an_outage_that_does_not_show_it() {
        let server = RedisServer::start_with(&["--requirepass", "opensesame"]);
        for credentials in ["", ":hunter2@", "nobody:hunter2@"] {
            let url = format!("redis://{credentials}127.0.0.1:{}", server.port());
            let store = RedisStore::new(url).unwrap();
            let mut shown = String::new();
            eventually("an attempt has failed", async || {
                let error = store.flag("checkout", soon()).await.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::Unavailable);
                shown = format!("{error} {error:?} {store:?}");
                error.source().is_some()
            })
            .await;
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let url = format!("redis://:opensesame@127.0.0.1:{}", server.port());
        let store = connect(url).await;
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lent_pool_that_checks_its_connections_recovers_too() {
        let mut server = RedisServer::start();
        let manager = RedisConnectionManager::new(server.url()).unwrap();
        let pool = bb8::Pool::builder().max_size(2).build(manager).await.unwrap();
        let store = RedisStore::from_pool(pool);
        take(&store, &quota(10)).await.unwrap();
        server.kill();
        let outcome = within(Duration::from_millis(200), |deadline| store.flag("checkout", deadline)).await;
        assert!(!matches!(outcome, Ok(Ok(_))));
        server.restart();
        eventually("an operation succeeds", async || {
            store.flag("checkout", soon()).await.is_ok()
        })
        .await;
    }
}

mod contents {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn keys_lie_where_the_layout_says() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        let hash = "apikey-sha256:1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";
        store.add_api_key("letmein", "user-42").await.unwrap();
        store.set_flag("checkout", true).await.unwrap();
        take(&store, &quota(10)).await.unwrap();
        let mut keys: Vec<String> = server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
        keys.sort_unstable();
        assert_eq!(keys, [hash, "flag:checkout", "rl:{client}:q"]);
        assert_eq!(server.cli(&["GET", hash]), "user-42");
        // What an operator writes is for good.
        assert_eq!(server.cli(&["TTL", hash]), "-1");
        assert_eq!(server.cli(&["TTL", "flag:checkout"]), "-1");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn plain_keys_and_a_prefix_are_a_matter_of_settings() {
        let server = RedisServer::start();
        server.cli(&["SET", "shop:apikey:letmein", "user-42"]);
        server.cli(&["SET", "shop:flag:checkout", "on"]);
        let built = RedisStore::builder(server.url())
            .api_keys(ApiKeys::plain())
            .key_prefix("shop:");
        let built = built.build().unwrap();
        connected(&built).await;
        let pool = bb8::Pool::builder()
            .build(RedisConnectionManager::new(server.url()).unwrap())
            .await
            .unwrap();
        let layout = KeyLayout::new()
            .with_api_keys(ApiKeys::plain())
            .with_prefix("shop:")
            .unwrap();
        for store in [built, RedisStore::from_pool(pool).with_layout(layout)] {
            assert_eq!(
                store.identity("letmein", soon()).await.unwrap().as_deref(),
                Some("user-42")
            );
            assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_database_and_a_socket_are_a_matter_of_the_url() {
        let server = RedisServer::start_with(&["--unixsocket", "redis.sock"]);
        server.cli_at(&format!("{}/3", server.url()), &["SET", "flag:checkout", "on"]);
        let socket = server.directory().join("redis.sock");
        for url in [
            format!("{}/3", server.url()),
            format!("unix://{}?db=3", socket.display()),
        ] {
            let store = connect(url).await;
            assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn flags_are_read_in_six_words_and_no_others() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        for (word, on) in [
            ("1", true),
            ("true", true),
            ("ON", true),
            ("0", false),
            ("False", false),
            ("off", false),
        ] {
            server.cli(&["SET", "flag:checkout", word]);
            assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(on), "{word}");
        }
        for word in ["", "yes", "2", " on", "on\n", "enabled"] {
            server.cli(&["SET", "flag:checkout", word]);
            let error = store.flag("checkout", soon()).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Answered, "{word}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_nobody_should_have_written_is_an_answer_and_no_outage() {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .api_keys(ApiKeys::plain())
            .build()
            .unwrap();
        connected(&store).await;
        for key in ["apikey:letmein", "flag:checkout", "rl:{client}:q"] {
            server.cli(&["RPUSH", key, "a list"]);
        }
        server.cli(&["SET", "apikey:empty", ""]);
        server.cli(&["EVAL", r"return redis.call('SET', 'apikey:binary', '\255\254')", "0"]);
        let errors = [
            store.identity("letmein", soon()).await.unwrap_err(),
            store.identity("empty", soon()).await.unwrap_err(),
            store.identity("binary", soon()).await.unwrap_err(),
            store.flag("checkout", soon()).await.unwrap_err(),
            take(&store, &quota(10)).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
        }
        assert_eq!(store.connections(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_command_that_is_forbidden_is_an_answer_and_no_outage() {
        let server = RedisServer::start();
        server.cli(&[
            "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get", "+select", "+hello",
        ]);
        let store = connect(format!("redis://reader:secret@127.0.0.1:{}", server.port())).await;
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), None);
        let error = take(&store, &quota(10)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
        // Nor may it ask for the server's role, which must not keep a breaker open.
        store.probe(Probe::Read, soon()).await.unwrap();
    }
}

mod limiter {
    use super::*;

    const KEY: &str = "rl:{client}:q";

    /// What is stored: the window's index, the previous count and the current one.
    fn counts(server: &RedisServer) -> (u64, u32, u32) {
        let unpack = "return {struct.unpack('>I8I4I4', redis.call('GET', KEYS[1]))}";
        let reply = server.cli(&["EVAL", unpack, "1", KEY]);
        let numbers: Vec<u64> = reply.lines().map(|line| line.parse().unwrap()).collect();
        (numbers[0], numbers[1] as u32, numbers[2] as u32)
    }

    fn store_counts(server: &RedisServer, (index, previous, current): (u64, u32, u32)) {
        let pack = "return redis.call('SET', KEYS[1], struct.pack('>I8I4I4', ARGV[1], ARGV[2], ARGV[3]))";
        let [index, previous, current] = [index, previous.into(), current.into()].map(|number: u64| number.to_string());
        server.cli(&["EVAL", pack, "1", KEY, &index, &previous, &current]);
    }

    fn time_to_live(server: &RedisServer) -> i64 {
        server.cli(&["PTTL", KEY]).parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn counts_expire_with_their_use() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        for (algorithm, windows) in [(Algorithm::SlidingWindow, 2), (Algorithm::FixedWindow, 1)] {
            server.cli(&["FLUSHALL"]);
            let quota = Quota {
                algorithm,
                window: YEAR,
                ..quota(2)
            };
            for _ in 0..3 {
                take(&store, &quota).await.unwrap();
                let left = time_to_live(&server);
                assert!(
                    left > 0 && left <= windows * YEAR.as_millis() as i64,
                    "{algorithm:?}: {left}"
                );
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_expiry_is_healed_by_any_request() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        for nth in 0..4 {
            assert_eq!(take(&store, &quota(2)).await.unwrap().allowed, nth < 2);
            assert!(time_to_live(&server) > 0);
            server.cli(&["PERSIST", KEY]);
            assert_eq!(time_to_live(&server), -1);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unreadable_counts_are_none_and_are_overwritten() {
        let server = RedisServer::start();
        let store = connect(server.url()).await;
        for junk in ["", "junk", "12", "sixteen bytes ok", "more than sixteen bytes"] {
            server.cli(&["SET", KEY, junk]);
            let taken = take(&store, &quota(3)).await.unwrap();
            assert_eq!((taken.allowed, taken.remaining), (true, 2), "{junk}");
            let (_, previous, current) = counts(&server);
            assert_eq!((previous, current), (0, 1), "{junk}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_forgotten_script_counts_nothing_twice_and_loses_nothing() {
        const REQUESTS: u32 = 2_000;
        let server = RedisServer::start();
        let store = connect(server.url()).await;
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
            for taken in futures_util::future::join_all(requests).await {
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
            let limit = random.u32(1..50);
            let window = random.u64(1_000..10_000_000);
            let (previous, current) = (random.u32(0..=limit), random.u32(0..limit));
            let before = server_millis(&server);
            let index = before / window;
            store_counts(&server, (index, previous, current));
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

    fn server_millis(server: &RedisServer) -> u64 {
        let reply = server.cli(&["TIME"]);
        let (seconds, micros) = reply.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000 + micros.parse::<u64>().unwrap() / 1_000
    }
}
