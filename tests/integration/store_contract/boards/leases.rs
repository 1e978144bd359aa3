//! The one probe that an opening has.

use super::*;

pub(crate) async fn an_opening_is_due_after_its_open_time(subject: Subject) {
    let entry = subject
        .trip(
            "a",
            Trip {
                open_for: SHORT,
                ..trip("o")
            },
        )
        .await;
    assert!(opening(&entry).due_in <= SHORT && opening(&entry).due_in > Duration::ZERO);
    assert!(!subject.lease("a", "o", HOUR).await);
    subject.pass(SHORT).await;
    assert_eq!(opening(&subject.entry().await).due_in, Duration::ZERO);
    assert!(subject.lease("a", "o", HOUR).await);
}

pub(crate) async fn of_many_instances_one_has_the_lease(subject: Subject) {
    subject.open_due("o").await;
    let instances: Vec<String> = (0..50).map(|nth| format!("instance-{nth}")).collect();
    let granted = join_all(instances.iter().map(|instance| subject.lease(instance, "o", HOUR))).await;
    assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
    assert!(subject.entry().await.probing);
    // The holder may ask again.
    let holder = granted.iter().position(|granted| *granted).unwrap();
    assert!(subject.lease(&instances[holder], "o", HOUR).await);
}

pub(crate) async fn a_lease_runs_out_unless_it_is_extended(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", SHORT).await);
    assert!(subject.lease("a", "o", HOUR).await);
    subject.pass(SHORT).await;
    assert!(!subject.lease("b", "o", HOUR).await);
    assert!(subject.lease("a", "o", SHORT).await);
    subject.pass(SHORT).await;
    assert!(!subject.entry().await.probing);
    assert!(subject.lease("b", "o", HOUR).await);
    assert!(!subject.yield_lease("a").await, "it is another's by now");
}

pub(crate) async fn only_the_holder_settles(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", HOUR).await);
    for entry in [subject.close("b", "o").await, subject.reopen("b", trip("o")).await] {
        assert_eq!(opening(&entry).round, 0);
        assert!(entry.probing);
    }
    let entry = subject.close("a", "o").await;
    assert_eq!(closing(&entry).by, "a");
    assert!(!entry.probing);
}

pub(crate) async fn a_lease_is_of_the_present_opening(subject: Subject) {
    subject.open_due("o").await;
    assert!(!subject.lease("a", "another", HOUR).await);
    assert!(!subject.entry().await.probing);
    subject.close("a", "o").await;
    assert!(!subject.lease("a", "o", HOUR).await);
    // An opening begins with its lease free.
    subject.open_due("p").await;
    assert!(subject.lease("a", "p", HOUR).await);
    subject.hold(Some(hold(HoldState::Open))).await;
    assert!(!subject.entry().await.probing);
    assert!(!subject.lease("a", "p", HOUR).await);
}

pub(crate) async fn a_lease_is_given_back_by_its_holder_alone(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", HOUR).await);
    assert!(!subject.yield_lease("b").await);
    assert!(subject.entry().await.probing);
    assert!(subject.yield_lease("a").await);
    assert!(!subject.entry().await.probing);
    assert!(!subject.yield_lease("a").await);
    assert!(subject.lease("b", "o", HOUR).await);
}

pub(crate) async fn the_holder_sees_that_somebody_else_wants_it(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", HOUR).await);
    assert!(!subject.entry().await.wanted);
    assert!(!subject.lease("b", "o", HOUR).await);
    assert!(subject.entry().await.wanted);
    // Extending it is no answer to that.
    assert!(subject.lease("a", "o", HOUR).await);
    assert!(subject.entry().await.wanted);
    // Who has got what it wanted leaves no wish behind.
    assert!(subject.yield_lease("a").await);
    assert!(subject.lease("b", "o", HOUR).await);
    assert!(!subject.entry().await.wanted);
}

pub(crate) async fn a_wish_is_forgotten_after_some_seconds(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", HOUR).await);
    assert!(!subject.lease("b", "o", HOUR).await);
    subject.pass(Duration::from_secs(3)).await;
    assert!(!subject.entry().await.wanted);
}

/// The wish of whoever waits is not lost when the lease runs out instead, but ends with its being granted.
pub(crate) async fn a_wish_ends_when_it_is_granted(subject: Subject) {
    subject.open_due("o").await;
    assert!(subject.lease("a", "o", SHORT).await);
    assert!(!subject.lease("b", "o", HOUR).await);
    subject.pass(SHORT).await;
    assert!(subject.lease("b", "o", HOUR).await);
    assert!(!subject.entry().await.wanted);
}
