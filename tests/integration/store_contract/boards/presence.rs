//! Who is here, which names there are, and who hears of a change.

use super::*;

pub(crate) async fn instances_and_names_are_those_that_were_seen(subject: Subject) {
    let board = subject.look().await;
    assert_eq!((board.instances, board.entries.len()), (0, 0));
    let names = ["search".to_owned(), NAME.to_owned()];
    for (instance, alive) in [("a", 1), ("b", 2), ("a", 2)] {
        let presence = Presence {
            instance,
            names: &names,
        };
        let board = subject.board().look(SYSTEM, Some(presence), soon()).await.unwrap();
        assert_eq!(board.instances, alive);
        assert!(board.entries.contains(&Entry::unknown(NAME)), "{board:?}");
    }
    // Whoever only looks is not counted, and one without breakers is.
    assert_eq!(subject.look().await.instances, 2);
    let presence = Presence {
        instance: "c",
        names: &[],
    };
    let board = subject.board().look(SYSTEM, Some(presence), soon()).await.unwrap();
    assert_eq!(board.instances, 3);
    assert_eq!(subject.names().await, [NAME, "search"]);
}

pub(crate) async fn whatever_is_under_a_name_makes_it_known(subject: Subject) {
    let board = subject.board();
    let of = |name| At { name, ..at("a") };
    board.lease(of("leased"), "o", HOUR, soon()).await.unwrap();
    board.close(of("ended"), Some("o"), "healed", soon()).await.unwrap();
    board.reopen(of("open"), &trip("o"), soon()).await.unwrap();
    board
        .hold(SYSTEM, "held", Some(&hold(HoldState::Open)), soon())
        .await
        .unwrap();
    board.trip(of("tripped"), &trip("o"), soon()).await.unwrap();
    // These leave nothing.
    board.close(of("none"), None, "healed", soon()).await.unwrap();
    board.yield_lease(of("none"), soon()).await.unwrap();
    board.hold(SYSTEM, "none", None, soon()).await.unwrap();
    assert_eq!(subject.names().await, ["ended", "held", "leased", "open", "tripped"]);
    board.yield_lease(of("leased"), soon()).await.unwrap();
    assert_eq!(subject.names().await, ["ended", "held", "open", "tripped"]);
}

pub(crate) async fn systems_and_names_never_meet(subject: Subject) {
    let names = ["payments:hold", "hold:payments", "{x}", "ü \n\0", "a\"b", ""];
    for system in ["payments", "payments-team", "a.b_c"] {
        for name in names {
            let at = At {
                system,
                name,
                instance: "a",
            };
            let id = format!("{system}/{name}");
            let entry = subject.board().trip(at, &trip(&id), soon()).await.unwrap();
            assert_eq!((entry.name.as_str(), opening(&entry).id.as_str()), (name, id.as_str()));
        }
    }
    for system in ["payments", "payments-team", "a.b_c"] {
        let board = subject.board().look(system, None, soon()).await.unwrap();
        assert_eq!((board.instances, board.entries.len()), (1, names.len()));
        for entry in board.entries {
            assert_eq!(opening(&entry).id, format!("{system}/{}", entry.name));
        }
    }
}

pub(crate) async fn nothing_is_so_long_that_it_overflows(subject: Subject) {
    let forever = Trip {
        open_for: Duration::MAX,
        failed_probes: u32::MAX,
        quorum: u32::MAX,
        window: Duration::MAX,
        ..trip("o")
    };
    assert!(opening(&subject.trip("a", forever).await).due_in > 1_000 * YEAR);
    let again = subject.reopen("a", forever).await;
    assert_eq!((opening(&again).round, opening(&again).failed_probes), (1, u32::MAX));
    subject.close("a", "o").await;
    assert!(subject.board().lease(at("a"), "o", Duration::MAX, soon()).await.is_ok());
    let held = NewHold {
        lasts: Some(Duration::MAX),
        ..hold(HoldState::Open)
    };
    subject.hold(Some(held)).await;
    let ends_in = subject.entry().await.hold.expect("it is held").ends_in;
    assert!(ends_in.is_some_and(|ends_in| ends_in > 1_000 * YEAR), "{ends_in:?}");
    // And nothing is so short that it would never end.
    let never = NewHold {
        lasts: Some(Duration::ZERO),
        ..hold(HoldState::Open)
    };
    subject.hold(Some(never)).await;
    subject.pass(Duration::from_millis(2)).await;
    assert_eq!(subject.entry().await.hold, None);
}

pub(crate) async fn changes_are_heard(subject: Subject) {
    let changes = subject.board().changes(SYSTEM, soon()).await;
    if !subject.pushes {
        assert_eq!(changes.map(drop).unwrap_err().kind(), StoreErrorKind::Answered);
        return;
    }
    let mut changes = changes.unwrap();
    let mut heard = async |what: &str| {
        let change = tokio::time::timeout(PATIENCE, changes.next()).await;
        assert_eq!(
            change.unwrap_or_else(|_| panic!("nothing is heard of {what}")),
            Some(()),
            "{what}"
        );
    };
    subject.open_due("o").await;
    heard("an opening").await;
    subject.reopen("a", trip("o")).await;
    heard("another while").await;
    subject.close("a", "o").await;
    heard("an end").await;
    subject.open_due("p").await;
    heard("another opening").await;
    subject.lease("a", "p", HOUR).await;
    subject.yield_lease("a").await;
    heard("a lease that is free").await;
    subject.hold(Some(hold(HoldState::Open))).await;
    heard("a hold").await;
    subject.hold(None).await;
    heard("its release").await;
}

/// On a clock that can be moved by weeks.
#[tokio::test]
async fn time_takes_what_nobody_has_looked_after() {
    let subject = Subject::memory().await;
    let second = Duration::from_secs(1);
    subject.arrive(&["a", "b"]).await;
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", HOUR).await);
    assert!(!subject.lease("b", "o", HOUR).await);
    subject.pass(2 * second).await;
    assert!(subject.entry().await.wanted);
    subject.pass(second).await;
    assert!(!subject.entry().await.wanted);
    subject.arrive(&["b"]).await;
    subject.pass(57 * second).await;
    assert_eq!(subject.look().await.instances, 1);
    assert!(subject.yield_lease("a").await);

    // Ten minutes after it was due; the trip was a little more than a minute ago.
    subject.pass(8 * 60 * second).await;
    assert_eq!(opening(&subject.entry().await).id, "o");
    subject.pass(60 * second).await;
    assert_eq!(subject.entry().await.circuit, Circuit::Unknown);

    subject.trip("a", trip("p")).await;
    subject.close("a", "p").await;
    subject.pass(24 * HOUR - second).await;
    assert_eq!(closing(&subject.entry().await).id, "p");
    subject.pass(second).await;
    assert_eq!(subject.entry().await.circuit, Circuit::Unknown);
    assert_eq!(subject.names().await, [NAME]);
    subject.pass(6 * 24 * HOUR).await;
    assert!(subject.names().await.is_empty());
    assert_eq!(subject.look().await.instances, 0);
}
