//! Votes, openings and their ends.

use std::time::SystemTime;

use super::*;

pub(crate) async fn one_vote_opens_where_one_is_enough(subject: Subject) {
    assert_eq!(subject.entry().await, Entry::unknown(NAME));
    let mine = Trip {
        failed_probes: 3,
        ..trip("first")
    };
    let entry = subject.trip("a", mine).await;
    let first = opening(&entry);
    assert_eq!((first.id.as_str(), first.by.as_str()), ("first", "a"));
    assert_eq!(
        (first.round, first.failed_probes, first.reason.as_str()),
        (0, 3, "5 failures in a row")
    );
    assert!(first.due_in <= HOUR && first.due_in > HOUR - PATIENCE, "{first:?}");
    assert!(!entry.probing && entry.hold.is_none());
    let seen = subject.entry().await;
    assert_eq!(opening(&seen).since, first.since);
    assert!(opening(&seen).due_in <= first.due_in);
}

pub(crate) async fn a_quorum_counts_each_instance_once(subject: Subject) {
    subject.arrive(&["a", "b", "c"]).await;
    let of_two = |opening| Trip {
        quorum: 2,
        ..trip(opening)
    };
    for _ in 0..3 {
        assert_eq!(subject.trip("a", of_two("a's")).await.circuit, Circuit::Unknown);
    }
    assert_eq!(subject.entry().await.circuit, Circuit::Unknown);
    let entry = subject.trip("b", of_two("b's")).await;
    assert_eq!((opening(&entry).id.as_str(), opening(&entry).by.as_str()), ("b's", "b"));
    // The votes are used up.
    subject.close("b", "b's").await;
    let entry = subject.trip("c", of_two("c's")).await;
    assert_eq!(closing(&entry).id, "b's");
}

pub(crate) async fn as_many_as_are_alive_are_enough(subject: Subject) {
    let of_nine = Trip {
        quorum: 9,
        ..trip("alone")
    };
    assert_eq!(opening(&subject.trip("a", of_nine).await).id, "alone");
    subject.close("a", "alone").await;
    // A vote itself shows that somebody is alive.
    assert_eq!(closing(&subject.trip("b", of_nine).await).id, "alone");
    assert_eq!(opening(&subject.trip("a", of_nine).await).by, "a");
    subject.close("a", "alone").await;
    let of_none = Trip {
        quorum: 0,
        ..trip("none")
    };
    assert_eq!(opening(&subject.trip("a", of_none).await).id, "none");
}

pub(crate) async fn a_vote_ends_with_its_window(subject: Subject) {
    subject.arrive(&["a", "b"]).await;
    let of_two = |window| Trip {
        quorum: 2,
        window,
        ..trip("o")
    };
    subject.trip("a", of_two(SHORT)).await;
    subject.pass(SHORT).await;
    assert_eq!(subject.trip("b", of_two(HOUR)).await.circuit, Circuit::Unknown);
    assert_eq!(opening(&subject.trip("a", of_two(SHORT)).await).by, "a");
}

pub(crate) async fn a_vote_is_taken_back(subject: Subject) {
    subject.arrive(&["a", "b"]).await;
    let of_two = Trip { quorum: 2, ..trip("o") };
    subject.trip("a", of_two).await;
    let taken_back = subject.board().close(at("a"), None, "healed", soon()).await.unwrap();
    assert_eq!(taken_back.circuit, Circuit::Unknown);
    assert_eq!(subject.trip("b", of_two).await.circuit, Circuit::Unknown);
    assert_eq!(opening(&subject.trip("a", of_two).await).by, "a");
}

pub(crate) async fn a_trip_changes_nothing_while_it_is_open(subject: Subject) {
    let first = subject.trip("a", trip("first")).await;
    let later = Trip {
        failed_probes: 7,
        ..trip("second")
    };
    let second = subject.trip("b", later).await;
    assert_eq!(opening(&second).id, "first");
    assert_eq!(opening(&second).since, opening(&first).since);
    assert_eq!(opening(&second).failed_probes, 0);
}

pub(crate) async fn an_end_is_remembered_and_comes_once(subject: Subject) {
    subject.open_due("first").await;
    let entry = subject.close("b", "first").await;
    let end = closing(&entry);
    assert_eq!(
        (end.id.as_str(), end.reason.as_str(), end.by.as_str()),
        ("first", "a probe succeeded", "b")
    );
    // Once more, by somebody else: the end is the first one's.
    assert_eq!(closing(&subject.close("c", "first").await).by, "b");
    // A failed probe of the same opening comes too late.
    assert_eq!(closing(&subject.reopen("a", trip("first")).await).id, "first");
    assert_eq!(closing(&subject.entry().await).since, end.since);
    assert_eq!(opening(&subject.trip("a", trip("second")).await).id, "second");
    // News of the first opening says nothing about the second.
    assert_eq!(opening(&subject.close("a", "first").await).id, "second");
    assert_eq!(opening(&subject.reopen("a", trip("first")).await).round, 0);
}

/// A store that has lost its data knows of one instance, the one that speaks.
pub(crate) async fn the_fleet_that_was_seen_counts_where_the_store_has_forgotten_it(subject: Subject) {
    let of_five = Trip {
        quorum: 2,
        fleet: 5,
        ..trip("o")
    };
    assert_eq!(subject.trip("a", of_five).await.circuit, Circuit::Unknown);
    assert_eq!(opening(&subject.trip("b", of_five).await).id, "o");
}

pub(crate) async fn a_failed_probe_opens_for_another_while(subject: Subject) {
    subject.open_due("first").await;
    let before = subject.entry().await;
    assert_eq!(opening(&before).due_in, Duration::ZERO);
    assert!(subject.lease("b", "first", HOUR).await);
    let failed = Trip {
        failed_probes: 4,
        reason: "timeouts",
        since: Some(SystemTime::UNIX_EPOCH),
        ..trip("first")
    };
    let entry = subject.reopen("b", failed).await;
    let again = opening(&entry);
    assert_eq!((again.id.as_str(), again.round), ("first", 1));
    assert_eq!(
        (again.failed_probes, again.reason.as_str(), again.by.as_str()),
        (4, "timeouts", "b")
    );
    assert!(again.due_in > HOUR - PATIENCE);
    assert_eq!(again.since, opening(&before).since);
    assert!(!entry.probing);
    // Said once more, or by somebody whose probe was before: nothing happens.
    subject.pass(SHORT).await;
    for who in ["b", "c"] {
        let said = subject.reopen(who, failed).await;
        assert_eq!(opening(&said).round, 1);
        assert!(opening(&said).due_in <= HOUR - SHORT);
    }
    let next = Trip { round: 1, ..failed };
    assert_eq!(opening(&subject.reopen("b", next).await).round, 2);
}

pub(crate) async fn a_forgotten_opening_is_written_again(subject: Subject) {
    let known = subject.trip("a", trip("other")).await;
    let now = opening(&known).since;
    subject.close("a", "other").await;
    // Under another name nothing is known.
    let at = At {
        name: "forgotten",
        ..at("a")
    };
    let since = now - HOUR;
    let again = Trip {
        since: Some(since),
        round: 6,
        ..trip("old")
    };
    assert!(subject.board().lease(at, "old", HOUR, soon()).await.unwrap().granted);
    let entry = subject.board().reopen(at, &again, soon()).await.unwrap();
    assert_eq!(
        (
            opening(&entry).id.as_str(),
            opening(&entry).round,
            opening(&entry).since
        ),
        ("old", 7, since)
    );

    let at = At { name: "ahead", ..at };
    let again = Trip {
        since: Some(now + 24 * HOUR),
        ..trip("old")
    };
    let entry = subject.board().reopen(at, &again, soon()).await.unwrap();
    let since = opening(&entry).since;
    assert!(
        since >= now && since < now + HOUR,
        "by the store's clock, not by {since:?}"
    );

    let at = At { name: "ended", ..at };
    let entry = subject.board().close(at, Some("old"), "healed", soon()).await.unwrap();
    assert_eq!(closing(&entry).id, "old");
    assert_eq!(subject.names().await, ["ahead", "ended", "forgotten", NAME]);
}
