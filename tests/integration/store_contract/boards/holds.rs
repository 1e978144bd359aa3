//! Orders of operators.

use super::*;

pub(crate) async fn a_hold_stands_until_it_is_released(subject: Subject) {
    assert!(!subject.hold(None).await);
    assert!(!subject.hold(Some(hold(HoldState::Open))).await);
    // A name that no instance has is found all the same.
    let entry = subject.entry().await;
    let held = entry.hold.expect("it is held");
    assert_eq!((held.state, held.ends_in), (HoldState::Open, None));
    assert_eq!((held.reason.as_str(), held.author.as_str()), ("a new database", "ada"));
    assert_eq!(entry.circuit, Circuit::Unknown);

    let silent = NewHold {
        reason: String::new(),
        author: String::new(),
        lasts: Some(HOUR),
        ..hold(HoldState::Closed)
    };
    assert!(subject.hold(Some(silent)).await);
    let held = subject.entry().await.hold.expect("it is held");
    assert_eq!(
        (held.state, held.reason.as_str(), held.author.as_str()),
        (HoldState::Closed, "", "")
    );
    let ends_in = held.ends_in.expect("it ends");
    assert!(ends_in <= HOUR && ends_in > HOUR - PATIENCE, "{ends_in:?}");

    assert!(subject.hold(Some(hold(HoldState::Open))).await);
    assert_eq!(subject.entry().await.hold.expect("it is held").ends_in, None);
    assert!(subject.hold(None).await);
    assert!(!subject.hold(None).await);
    assert_eq!(subject.entry().await.hold, None);
}

pub(crate) async fn a_hold_runs_out(subject: Subject) {
    let short = NewHold {
        lasts: Some(SHORT),
        ..hold(HoldState::Closed)
    };
    subject.hold(Some(short)).await;
    assert!(subject.entry().await.hold.is_some());
    subject.pass(SHORT).await;
    assert_eq!(subject.entry().await.hold, None);
    assert!(!subject.hold(None).await);
}

pub(crate) async fn a_hold_ends_the_opening(subject: Subject) {
    for state in [HoldState::Open, HoldState::Closed] {
        subject.open_due("o").await;
        assert!(subject.lease("a", "o", HOUR).await);
        subject.hold(Some(hold(state))).await;
        let entry = subject.entry().await;
        let end = closing(&entry);
        assert_eq!((end.id.as_str(), end.by.as_str()), ("o", "ada"));
        assert_eq!(end.reason, format!("held {state}"));
        assert!(!entry.probing);
        assert!(subject.hold(None).await);
        assert_eq!(closing(&subject.entry().await).id, "o");
    }
}

pub(crate) async fn nothing_opens_or_closes_while_it_is_held(subject: Subject) {
    subject.arrive(&["a", "b"]).await;
    let of_two = Trip { quorum: 2, ..trip("o") };
    // A vote from before counts no more, nor does one that is given meanwhile.
    subject.trip("a", of_two).await;
    subject.hold(Some(hold(HoldState::Closed))).await;
    for entry in [
        subject.trip("a", of_two).await,
        subject.trip("b", trip("o")).await,
        subject.close("a", "o").await,
        subject.reopen("a", trip("o")).await,
    ] {
        assert_eq!(entry.circuit, Circuit::Unknown);
        assert!(entry.hold.is_some());
    }
    assert!(!subject.lease("a", "o", HOUR).await);
    subject.hold(None).await;
    assert_eq!(subject.trip("b", of_two).await.circuit, Circuit::Unknown);
    assert_eq!(opening(&subject.trip("a", of_two).await).by, "a");
}
