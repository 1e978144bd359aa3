//! Orders of others, in a race with calls.

use super::{
    orders::{Held, Order},
    *,
};

/// Past its open time, and before it goes on alone.
const WAITING: u64 = 6_000_000_000;
const LEAVE: Order = Order::Probe { until: DUE };

/// A machine that has joined others, and has opened.
fn waiting() -> Arc<Machine> {
    let machine = closed(one_failure());
    machine.join();
    let trip = call(&machine);
    assert_eq!(machine.settle(trip, Outcome::Failure, || START), Some(State::Open));
    machine
}

fn generation(machine: &Machine) -> u64 {
    machine.news(WAITING).generation
}

/// Whether a call at this time is let in as a probe.
fn probes(machine: &Machine, now: u64) -> bool {
    matches!(
        machine.admit(|| now),
        Ok(Ticket {
            entry: Entry::Probe { .. },
            ..
        })
    )
}

#[test]
fn leave_is_for_one_probe_and_without_it_there_is_none() {
    check(|| {
        let machine = waiting();
        assert!(!probes(&machine, WAITING), "nobody has said yes");
        let gives = thread::spawn({
            let machine = machine.clone();
            move || machine.obey(generation(&machine), LEAVE, WAITING)
        });
        let early = together(2, {
            let machine = machine.clone();
            move || probes(&machine, WAITING)
        });
        let given = gives.join().unwrap();
        let late = probes(&machine, WAITING);
        let admitted = early.into_iter().chain([late]).filter(|admitted| *admitted).count();
        assert_eq!(admitted, 1, "leave was given: {given:?}");
    });
}

#[test]
fn an_order_for_what_was_before_changes_nothing() {
    check(|| {
        let machine = waiting();
        machine.obey(generation(&machine), LEAVE, WAITING);
        let probe = machine.admit(|| WAITING).expect("it has leave");
        let asked_for = generation(&machine);
        let fails = thread::spawn({
            let machine = machine.clone();
            move || machine.settle(probe, Outcome::Failure, || WAITING)
        });
        let obeyed = machine.obey(asked_for, Order::Close, WAITING);
        let failed = fails.join().unwrap();
        match (obeyed, failed) {
            (Some(_), None) => assert_eq!(machine.state(), State::Closed),
            (None, Some(State::Open)) => assert_eq!(machine.state(), State::Open),
            both_or_none => panic!("{both_or_none:?}"),
        }
    });
}

#[test]
fn nobody_gets_past_an_order_to_hold_it_open() {
    check(|| {
        let machine = waiting();
        let holds = thread::spawn({
            let machine = machine.clone();
            move || machine.obey(generation(&machine), Order::Hold(Held::Open), WAITING)
        });
        let early = machine.admit(|| DUE).ok();
        let held = holds.join().unwrap();
        // It had gone on alone, or not yet.
        if held.is_some() {
            assert!(machine.admit(|| u64::MAX - 1).is_err());
        }
        if let (Some(early), true) = (early, held.is_some()) {
            assert_eq!(machine.settle(early, Outcome::Success, || DUE), None);
            assert_eq!(machine.state(), State::Open);
        }
    });
}

#[test]
fn a_call_under_an_order_counts_neither_during_it_nor_after() {
    check(|| {
        let machine = closed(one_failure());
        machine.join();
        machine.obey(generation(&machine), Order::Hold(Held::Closed), START);
        let during = call(&machine);
        let releases = thread::spawn({
            let machine = machine.clone();
            move || machine.obey(generation(&machine), Order::Release, START)
        });
        assert_eq!(machine.settle(during, Outcome::Failure, || START), None);
        assert!(releases.join().unwrap().is_some());
        let after = call(&machine);
        assert_eq!(machine.settle(after, Outcome::Failure, || START), Some(State::Open));
    });
}

#[test]
fn parting_leaves_no_order_behind() {
    check(|| {
        let machine = waiting();
        let parts = thread::spawn({
            let machine = machine.clone();
            move || machine.part()
        });
        machine.obey(generation(&machine), Order::Hold(Held::Open), WAITING);
        machine.obey(generation(&machine), Order::Wait, WAITING);
        parts.join().unwrap();
        // Closed by the end of the order, or open and due: never held back.
        assert!(machine.admit(|| WAITING).is_ok());
    });
}
