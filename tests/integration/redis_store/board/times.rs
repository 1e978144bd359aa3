//! Expiries, those that were lost, and a server whose clock has been set.

use resilience_tests::eventually;

use super::*;

const MINUTE: i64 = 60_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_expires_with_what_it_says() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let lives = |kind: &str, most: i64| {
        let left = time_to_live(&server, &key(kind));
        assert!(left > most - MINUTE && left <= most, "{kind}: {left} of {most}");
    };
    arrive(&store, "b").await;
    let left = time_to_live(&server, INSTANCES);
    assert!(left > 0 && left <= MINUTE, "{left}");
    let of_two = Trip { quorum: 2, ..trip("o") };
    board(&store).trip(at("a"), &of_two, soon()).await.unwrap();
    lives("votes", 60 * MINUTE);
    assert!(lease(&store, "a", "o", HOUR / 6).await);
    lives("lease", 10 * MINUTE);
    assert!(!lease(&store, "b", "o", HOUR).await);
    let left = time_to_live(&server, &key("wanted"));
    assert!(left > 0 && left <= 3_000, "{left}");
    open(&store, "o").await;
    lives("circuit", 70 * MINUTE);
    board(&store).close(at("a"), Some("o"), "healed", soon()).await.unwrap();
    lives("circuit", 24 * 60 * MINUTE);
    let of_an_hour = NewHold {
        lasts: Some(HOUR),
        ..hold()
    };
    board(&store)
        .hold(SYSTEM, NAME, Some(&of_an_hour), soon())
        .await
        .unwrap();
    lives("hold", 60 * MINUTE);
    board(&store).hold(SYSTEM, NAME, Some(&hold()), soon()).await.unwrap();
    assert_eq!(time_to_live(&server, &key("hold")), -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_expiries_come_back_with_the_next_look_of_an_instance() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let now = now(&server);
    let lost = |kinds: &[&str], heals: bool| {
        for kind in kinds {
            assert_eq!(time_to_live(&server, &key(kind)) > 0, heals, "{kind}");
        }
    };
    put(&server, "circuit", &opening(now, now + MINUTE, MINUTE));
    put(&server, "hold", &held(now, Some(now + MINUTE)));
    server.cli(&["ZADD", &key("votes"), &(now + MINUTE).to_string(), "b"]);
    server.cli(&["SET", &key("lease"), "b"]);
    server.cli(&["SET", &key("wanted"), "c"]);
    let kinds = ["circuit", "hold", "votes", "lease", "wanted"];
    look(&store).await;
    lost(&kinds, false);
    arrive(&store, "a").await;
    lost(&kinds, true);
    put(&server, "circuit", &closing(now));
    arrive(&store, "a").await;
    lost(&["circuit"], true);
    // An order for ever is one.
    put(&server, "hold", &held(now, None));
    arrive(&store, "a").await;
    lost(&["hold"], false);
    assert!(entry(&store).await.hold.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_run_out_counts_for_nothing_though_it_lies_there() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let now = now(&server);
    put(&server, "hold", &held(now - 2 * MINUTE, Some(now - MINUTE)));
    server.cli(&["ZADD", &key("votes"), &(now - MINUTE).to_string(), "b"]);
    server.cli(&["ZADD", INSTANCES, &(now - MINUTE).to_string(), "b"]);
    for record in [
        opening(now - 60 * MINUTE, now - 10 * MINUTE, MINUTE),
        closing(now - 24 * 60 * MINUTE),
    ] {
        put(&server, "circuit", &record);
        // Nor does it make a name known.
        let board = look(&store).await;
        assert_eq!((board.instances, board.entries.len()), (0, 0));
    }
    arrive(&store, "c").await;
    let of_two = Trip { quorum: 2, ..trip("o") };
    let entry = board(&store).trip(at("a"), &of_two, soon()).await.unwrap();
    assert_eq!((entry.circuit, entry.hold), (Circuit::Unknown, None));
    assert_eq!(server.cli(&["ZRANGE", &key("votes"), "0", "-1"]), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_last_week_are_forgotten_unless_there_is_more_of_them() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let old = (now(&server) - 8 * 24 * 60 * MINUTE).to_string();
    board(&store).hold(SYSTEM, "held", Some(&hold()), soon()).await.unwrap();
    server.cli(&["ZADD", NAMES, &old, "held", &old, "gone"]);
    let names = |board: Board| board.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert_eq!(names(look(&store).await), ["held"]);
    assert_eq!(server.cli(&["ZCARD", NAMES]), "2");
    arrive(&store, "a").await;
    assert_eq!(server.cli(&["ZRANGE", NAMES, "0", "-1"]), format!("held\n{NAME}"));
}

/// Whoever only looks leaves the server as it is, whatever there is to be healed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_writes_nothing() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let now = now(&server);
    let written = || {
        let info = server.cli(&["INFO", "persistence"]);
        let line = info
            .lines()
            .find(|line| line.starts_with("rdb_changes_since_last_save:"));
        line.expect("it counts").to_owned()
    };
    put(&server, "circuit", &opening(now, now + 60 * MINUTE, MINUTE));
    server.cli(&["SET", &key("lease"), "b"]);
    server.cli(&["ZADD", &key("votes"), "1", "b"]);
    server.cli(&["ZADD", INSTANCES, "1", "b"]);
    server.cli(&["ZADD", NAMES, "1", "gone"]);
    let before = written();
    for _ in 0..3 {
        let board = look(&store).await;
        assert_eq!((board.instances, board.entries.len()), (0, 1));
    }
    assert_eq!(written(), before);
    arrive(&store, "a").await;
    assert_ne!(written(), before);
}

/// As after a clock that was an hour ahead, and has been set back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_keeps_nothing_open_for_longer() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let open_for = i64::try_from(SHORT.as_millis()).unwrap();
    let due_in = async || match entry(&store).await.circuit {
        Circuit::Open(opening) => opening.due_in,
        other => panic!("not open but {other:?}"),
    };
    let ahead = now(&server) + 60 * MINUTE;
    // Either an instance's look or its wish to probe starts the time that is left.
    put(&server, "circuit", &opening(ahead, ahead + open_for, open_for));
    assert!(due_in().await <= SHORT);
    assert!(!lease(&store, "a", "o", HOUR).await);
    eventually("it is due", async || due_in().await.is_zero()).await;
    assert!(lease(&store, "a", "o", HOUR).await);

    put(&server, "circuit", &opening(ahead, ahead + open_for, open_for));
    arrive(&store, "a").await;
    eventually("it is due", async || due_in().await.is_zero()).await;

    let behind = now(&server) - 60 * MINUTE;
    put(
        &server,
        "circuit",
        &opening(behind, behind + 60 * MINUTE + 1, 60 * MINUTE),
    );
    eventually("it is due", async || due_in().await.is_zero()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_would_never_end_does() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let wish = || lease(&store, "a", "o", SHORT);
    // Without an expiry, and with one from a clock that was set back.
    server.cli(&["SET", &key("lease"), "b"]);
    assert!(!wish().await);
    eventually("it has run out", async || wish().await).await;
    server.cli(&["SET", &key("lease"), "b", "PX", "3600000"]);
    assert!(!wish().await);
    eventually("it has run out", async || wish().await).await;
    // One of some minutes is another's that is configured so.
    server.cli(&["SET", &key("lease"), "b", "PX", "300000"]);
    assert!(!wish().await);
    assert!(time_to_live(&server, &key("lease")) > 200_000);
}
