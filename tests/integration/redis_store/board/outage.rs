//! Scripts forgotten, connections lost, rights refused.

use futures_util::{StreamExt, future::join_all};
use resilience::store::StoreErrorKind;
use resilience_tests::{PATIENCE, Proxy, eventually};
use tokio::{task::yield_now, time::timeout};

use super::*;
use crate::redis_store::within;

async fn next(changes: &mut (impl StreamExt<Item = ()> + Unpin)) -> Option<()> {
    timeout(PATIENCE, changes.next()).await.expect("something comes of it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_script_runs_once_all_the_same() {
    let server = RedisServer::start();
    let stores = [connect(server.url()).await, connect(server.url()).await];
    let forget = async {
        for _ in 0..50 {
            server.cli(&["SCRIPT", "FLUSH"]);
            yield_now().await;
        }
    };
    let instances: Vec<String> = (0..200).map(|nth| format!("instance-{nth}")).collect();
    let wishes = instances
        .iter()
        .enumerate()
        .map(|(nth, instance)| lease(&stores[nth % 2], instance, "o", HOUR));
    let (granted, ()) = tokio::join!(join_all(wishes), forget);
    assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
    for round in 0..100 {
        server.cli(&["SCRIPT", "FLUSH"]);
        let failed = Trip { round, ..trip("p") };
        let of_another = At {
            name: "search",
            ..at("a")
        };
        let entry = board(&stores[0]).reopen(of_another, &failed, soon()).await.unwrap();
        assert!(matches!(entry.circuit, Circuit::Open(opening) if opening.round == round + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_heard_by_other_instances() {
    let server = RedisServer::start_with(&["--requirepass", "opensesame"]);
    let url = format!("redis://:opensesame@127.0.0.1:{}", server.port());
    let build = || RedisStore::builder(&url).key_prefix("shop:").build().unwrap();
    let (one, other) = (build(), build());
    let mut changes = board(&other).changes(SYSTEM, soon()).await.unwrap();
    open(&one, "o").await;
    assert_eq!(next(&mut changes).await, Some(()));
    // Whatever is said, by whomever, is only that it is worth looking.
    let channel = format!("shop:breaker:{{{SYSTEM}}}:changes");
    server.cli_at(&url, &["PUBLISH", &channel, "\u{0}"]);
    assert_eq!(next(&mut changes).await, Some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_from_before_redis_6_carries_boards_too() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let store = connect(server.url()).await;
    let mut changes = board(&store).changes(SYSTEM, soon()).await.unwrap();
    open(&store, "o").await;
    assert_eq!(next(&mut changes).await, Some(()));
    assert!(matches!(entry(&store).await.circuit, Circuit::Open(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_end_with_their_connection_and_are_listened_to_again() {
    let mut server = RedisServer::start();
    let store = connect(server.url()).await;
    let listen = || board(&store).changes(SYSTEM, soon());
    let mut changes = listen().await.unwrap();
    server.cli(&["CLIENT", "KILL", "TYPE", "PUBSUB"]);
    assert_eq!(next(&mut changes).await, None);
    let mut changes = listen().await.unwrap();
    server.kill();
    assert_eq!(next(&mut changes).await, None);
    assert_eq!(
        listen().await.map(drop).unwrap_err().kind(),
        StoreErrorKind::Unavailable
    );
    server.restart();
    let mut changes = listen().await.unwrap();
    eventually("it opens", async || {
        board(&store).trip(at("a"), &trip("o"), soon()).await.is_ok()
    })
    .await;
    assert_eq!(next(&mut changes).await, Some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_listens_no_more_leaves_no_connection() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let listeners = || server.cli(&["CLIENT", "LIST", "TYPE", "PUBSUB"]).lines().count();
    let changes = board(&store).changes(SYSTEM, soon()).await.unwrap();
    assert_eq!(listeners(), 1);
    drop(changes);
    eventually("the connection is closed", async || listeners() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_takes_no_longer_than_its_deadline() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let store = connect(proxy.url()).await;
    proxy.blackhole().await;
    // The outer bound is what would end an operation that does not keep its own.
    let deadline = tokio::time::Instant::now() + SHORT;
    let outcome = within(PATIENCE, |_| board(&store).changes(SYSTEM, deadline)).await;
    let error = outcome.expect("it ends by itself").map(drop).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(!error.is_denied());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_from_an_outage() {
    let mut server = RedisServer::start_with(&["--requirepass", "opensesame"]);
    for credentials in ["", ":hunter2@", "nobody:hunter2@"] {
        let store = RedisStore::new(format!("redis://{credentials}127.0.0.1:{}", server.port())).unwrap();
        eventually("the refusal is known", async || {
            let error = board(&store).look(SYSTEM, None, soon()).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            error.is_denied()
        })
        .await;
        let error = board(&store).changes(SYSTEM, soon()).await.map(drop).unwrap_err();
        assert!(error.is_denied(), "{error}");
        let shown = format!("{error} {error:?} {store:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let url = format!("redis://:opensesame@127.0.0.1:{}", server.port());
    let store = connect(url).await;
    server.kill();
    eventually("an outage is known", async || !store.is_connected()).await;
    let error = board(&store).look(SYSTEM, None, soon()).await.unwrap_err();
    assert!(!error.is_denied(), "{error}");
}

/// A user of Redis 7 has no channels unless it is given some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_to_the_channel_all_works_but_the_push() {
    let server = RedisServer::start();
    server.cli(&[
        "ACL",
        "SETUSER",
        "mute",
        "on",
        ">secret",
        "~*",
        "resetchannels",
        "+@all",
    ]);
    let store = connect(format!("redis://mute:secret@127.0.0.1:{}", server.port())).await;
    assert!(matches!(open(&store, "o").await.circuit, Circuit::Open(_)));
    let entry = board(&store).close(at("a"), Some("o"), "healed", soon()).await.unwrap();
    assert!(matches!(entry.circuit, Circuit::Closed(_)));
    assert!(!board(&store).hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap());
    let error = board(&store).changes(SYSTEM, soon()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
    assert!(error.is_denied(), "{error}");
}
