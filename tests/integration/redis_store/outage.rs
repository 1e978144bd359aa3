//! Redis killed, frozen, demoted, full, cut off: what operations say meanwhile, and the way back.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::{RedisConnectionManager, bb8};
use resilience::store::{Probe, RedisStore, Store, StoreAdmin, StoreErrorKind};
use resilience_tests::{PATIENCE, Proxy, RedisServer, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::{Instant, interval, timeout_at},
};

use super::{client_ids, connect, connected, quota, soon, take, within};

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
    let asked = async |deadline| store.flag("checkout", deadline).await;
    while let Ok(Ok(_)) = within(Duration::from_millis(100), asked).await {}
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
    eventually("the loss is noticed", async || !store.is_connected()).await;
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
    // Failed probes stretch the back-off, by far beyond this test's patience. Those that come too soon after another one
    // do not try, so that they come at their pace here.
    let mut pace = interval(Duration::from_millis(110));
    for _ in 0..10 {
        pace.tick().await;
        assert!(store.probe(Probe::Write, soon()).await.is_err());
    }
    server.restart();
    assert!(store.flag("checkout", soon()).await.is_err());
    eventually("a probe connects", async || {
        store.probe(Probe::Write, soon()).await.is_ok()
    })
    .await;
    store.flag("checkout", soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_in_a_row_do_not_storm_a_server_that_is_down() {
    // Hangs up on whoever comes, and counts them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = RedisStore::builder(format!("redis://{}", listener.local_addr().unwrap()))
        .reconnect_cap(Duration::from_secs(60))
        .build()
        .unwrap();
    let attempts = tokio::spawn(async move {
        for attempts in 0.. {
            match timeout_at(Instant::now() + Duration::from_secs(1), listener.accept()).await {
                Ok(_hung_up) => {}
                Err(_silence) => return attempts,
            }
        }
        unreachable!("the range has no end")
    });
    let started = Instant::now();
    let mut asked = 0;
    while started.elapsed() < Duration::from_millis(300) {
        assert!(store.probe(Probe::Write, soon()).await.is_err());
        asked += 1;
    }
    // Two connections for each attempt that the probes could force, and some of the pool's own.
    let attempts = attempts.await.unwrap();
    assert!(asked > 100, "{asked}");
    assert!(attempts < 20, "{attempts} attempts by {asked} probes");
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
    let frozen = Instant::now();
    while store.is_connected() {
        let error = store.flag("checkout", Instant::now() + Duration::from_millis(20)).await;
        let kind = error.expect_err("it is frozen").kind();
        let found_out = [StoreErrorKind::TimedOut, StoreErrorKind::Unavailable];
        assert!(found_out.contains(&kind), "{kind:?}");
    }
    // A second of silence for each of the two: what is merely late is not given up.
    assert!(frozen.elapsed() >= Duration::from_secs(1));
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
async fn a_first_connection_that_takes_longer_than_a_checkout_waits_is_no_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    proxy.delay(Duration::from_millis(60)).await;
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    // Each waits for the connection that is being made, as long as it has time itself.
    store.flag("checkout", soon()).await.unwrap();
    store.identity("letmein", soon()).await.unwrap();
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
