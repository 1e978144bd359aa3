//! What may lie under a board's keys that no instance of ours has written.

use resilience::store::{StoreErrorKind, board::Leased};

use super::*;

/// Everything that cannot be an opening or a closing.
fn put_broken_circuits(server: &RedisServer) -> Vec<Box<dyn Fn() + '_>> {
    let now = now(server);
    let mut puts: Vec<Box<dyn Fn()>> = Vec::new();
    let numbers = ["v", "round", "since", "until", "open_for", "failed_probes"];
    let mut records = broken(&opening(now, now + 1_000, 1_000), &numbers);
    records.extend(broken(&closing(now), &["v", "since"]));
    for (field, value) in [("v", "0"), ("state", "ajar"), ("state", "")] {
        let mut record = opening(now, now + 1_000, 1_000);
        record.iter_mut().find(|(name, _)| *name == field).unwrap().1 = value.to_owned();
        records.push(record);
    }
    records.push(vec![("something", "else".to_owned())]);
    for record in records {
        puts.push(Box::new(move || put(server, "circuit", &record)));
    }
    for command in [["SET", "text"], ["LPUSH", "a list"], ["SADD", "a set"]] {
        puts.push(Box::new(move || {
            server.cli(&["DEL", &key("circuit")]);
            server.cli(&[command[0], &key("circuit"), command[1]]);
            server.cli(&["ZADD", NAMES, "0", NAME]);
        }));
    }
    puts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_circuit_is_unreadable_and_overwritten() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    for (nth, put) in put_broken_circuits(&server).iter().enumerate() {
        put();
        assert_eq!(entry(&store).await.circuit, Circuit::Unreadable, "{nth}");
        assert_eq!(
            arrive(&store, "a").await.entries[0].circuit,
            Circuit::Unreadable,
            "{nth}"
        );
        // As one that is forgotten, it has a lease all the same.
        assert!(lease(&store, "a", "o", HOUR).await, "{nth}");
        let entry = open(&store, "new").await;
        assert!(
            matches!(&entry.circuit, Circuit::Open(opening) if opening.id == "new"),
            "{nth}: {entry:?}"
        );
        assert!(!entry.probing);

        put();
        let entry = board(&store).close(at("a"), Some("o"), "healed", soon()).await.unwrap();
        assert!(
            matches!(&entry.circuit, Circuit::Closed(closing) if closing.id == "o"),
            "{nth}: {entry:?}"
        );
        put();
        let entry = board(&store).reopen(at("a"), &trip("o"), soon()).await.unwrap();
        assert!(
            matches!(&entry.circuit, Circuit::Open(opening) if opening.round == 1),
            "{nth}: {entry:?}"
        );
        put();
        board(&store).hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap();
        board(&store).hold(SYSTEM, NAME, None, soon()).await.unwrap();
        assert_eq!(super::entry(&store).await.circuit, Circuit::Unknown, "{nth}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_record_is_left_alone_by_all_but_an_operator() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let mut newer = opening(now(&server), 5, 5);
    newer[0].1 = "2".to_owned();
    newer.push(("more", "of it".to_owned()));
    put(&server, "circuit", &newer);
    let before = server.cli(&["HGETALL", &key("circuit")]);

    let board = board(&store);
    // It may be open: who wants to probe asks first, so that there is one.
    let Leased { granted, entry } = board.lease(at("a"), "o", HOUR, soon()).await.unwrap();
    assert!(granted);
    assert_eq!(entry.circuit, Circuit::Unreadable);
    assert!(!lease(&store, "b", "o", HOUR).await);
    for entry in [
        board.trip(at("a"), &trip("new"), soon()).await.unwrap(),
        board.reopen(at("a"), &trip("o"), soon()).await.unwrap(),
        board.close(at("a"), Some("o"), "healed", soon()).await.unwrap(),
        arrive(&store, "a").await.entries.remove(0),
        super::entry(&store).await,
    ] {
        assert_eq!(entry.circuit, Circuit::Unreadable);
        assert!(!entry.probing || entry.wanted);
    }
    assert_eq!(server.cli(&["HGETALL", &key("circuit")]), before);
    assert_eq!(server.cli(&["EXISTS", &key("votes")]), "0");

    board.hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap();
    board.hold(SYSTEM, NAME, None, soon()).await.unwrap();
    assert_eq!(super::entry(&store).await.circuit, Circuit::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_hold_is_none() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let now = now(&server);
    let whole = held(now, Some(now + 60_000));
    put(&server, "hold", &whole);
    assert!(entry(&store).await.hold.is_some());
    let mut records = broken(&whole, &["v", "since", "until"]);
    // Without its end it is a hold for ever, which is none of the broken ones.
    records.retain(|record| *record != held(now, None));
    for (field, value) in [("v", "2"), ("state", "ajar")] {
        let mut record = whole.clone();
        record.iter_mut().find(|(name, _)| *name == field).unwrap().1 = value.to_owned();
        records.push(record);
    }
    for record in records {
        put(&server, "hold", &record);
        assert_eq!(entry(&store).await.hold, None, "{record:?}");
        assert!(
            matches!(open(&store, "o").await.circuit, Circuit::Open(_)),
            "{record:?}"
        );
        assert!(!board(&store).hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap());
        assert!(board(&store).hold(SYSTEM, NAME, None, soon()).await.unwrap());
    }
    server.cli(&["SET", &key("hold"), "text"]);
    assert_eq!(entry(&store).await.hold, None);
    assert!(!board(&store).hold(SYSTEM, NAME, None, soon()).await.unwrap());
    assert_eq!(server.cli(&["EXISTS", &key("hold")]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_another_type_stop_nothing() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let (votes, owner, wanted) = (key("votes"), key("lease"), key("wanted"));
    let all = [INSTANCES, NAMES, votes.as_str(), owner.as_str(), wanted.as_str()];
    let spoil = || {
        for key in all {
            server.cli(&["DEL", key]);
            server.cli(&["LPUSH", key, "a list"]);
        }
    };
    let board = board(&store);
    spoil();
    let seen = look(&store).await;
    assert_eq!((seen.instances, seen.entries.len()), (0, 0));
    let seen = arrive(&store, "a").await;
    assert_eq!((seen.instances, seen.entries.len()), (1, 1));
    assert!(!seen.entries[0].probing);
    spoil();
    assert!(lease(&store, "a", "o", HOUR).await);
    spoil();
    assert!(!board.yield_lease(at("a"), soon()).await.unwrap());
    spoil();
    let entry = board.close(at("a"), Some("o"), "healed", soon()).await.unwrap();
    assert!(matches!(entry.circuit, Circuit::Closed(_)));
    spoil();
    assert!(matches!(open(&store, "p").await.circuit, Circuit::Open(_)));
    spoil();
    let entry = board.reopen(at("a"), &trip("p"), soon()).await.unwrap();
    assert!(matches!(entry.circuit, Circuit::Open(opening) if opening.round == 1));
    spoil();
    assert!(!board.hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap());
    assert_eq!(look(&store).await.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_is_no_utf_8_is_shown_as_well_as_it_can_be() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    put(&server, "circuit", &closing(now(&server)));
    let script = "redis.call('HSET', KEYS[1], 'reason', 'caf\\233')";
    server.cli(&["EVAL", script, "1", &key("circuit")]);
    let circuit = entry(&store).await.circuit;
    assert!(
        matches!(&circuit, Circuit::Closed(closing) if closing.reason == "caf\u{fffd}"),
        "{circuit:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_lies_under_the_prefix_and_in_one_slot() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).key_prefix("shop:").build().unwrap();
    let of_two = Trip { quorum: 2, ..trip("o") };
    arrive(&store, "b").await;
    board(&store).trip(at("a"), &of_two, soon()).await.unwrap();
    assert!(lease(&store, "a", "o", HOUR).await);
    assert!(!lease(&store, "b", "o", HOUR).await);
    let of_another = At {
        name: "search",
        ..at("a")
    };
    board(&store).trip(of_another, &trip("o"), soon()).await.unwrap();
    board(&store).hold(SYSTEM, "mail", Some(&hold()), soon()).await.unwrap();
    let keys = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.sort_unstable();
    let expected = [
        "circuit:search",
        "hold:mail",
        "instances",
        "lease:payments",
        "names",
        "votes:payments",
        "wanted:payments",
    ];
    assert_eq!(keys, expected.map(|key| format!("shop:breaker:{{{SYSTEM}}}:{key}")));
    assert_eq!(server.cli(&["GET", &format!("shop:{}", key("lease"))]), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_is_no_contents_is_no_broken_record() {
    let server = RedisServer::start();
    let admin = connect(server.url()).await;
    open(&admin, "o").await;
    server.cli(&[
        "ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-hmget",
    ]);
    let store = connect(format!("redis://blind:secret@127.0.0.1:{}", server.port())).await;
    let error = board(&store).look(SYSTEM, None, soon()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
    assert!(error.is_denied(), "{error}");
    assert!(
        board(&store)
            .trip(at("a"), &trip("p"), soon())
            .await
            .unwrap_err()
            .is_denied()
    );
    assert!(matches!(entry(&admin).await.circuit, Circuit::Open(opening) if opening.id == "o"));
}
