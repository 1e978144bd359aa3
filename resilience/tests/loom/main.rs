//! The breaker's transitions under every interleaving (within a bound of preemptions) that loom can make.
//!
//! Compiles the very files of the breaker, with loom's atomics and locks in place of the standard ones.

use std::time::Duration;

use loom::{
    model::Builder,
    sync::{Arc, Mutex as LoomMutex},
    thread,
};

use self::{
    config::{BreakerConfig, RateWindow},
    event::{Outcome, State},
    state::{Entry, Machine, Ticket},
};

#[allow(dead_code, unreachable_pub, reason = "only the nanoseconds of a duration are needed")]
#[path = "../../src/clock.rs"]
mod clock;
#[allow(dead_code, unreachable_pub, reason = "only the transitions are checked here")]
#[path = "../../src/breaker/config.rs"]
mod config;
#[allow(dead_code, unreachable_pub, reason = "only the transitions are checked here")]
#[path = "../../src/breaker/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub, reason = "only the transitions are checked here")]
#[path = "../../src/breaker/event.rs"]
mod event;
#[allow(dead_code, unreachable_pub, reason = "only the transitions are checked here")]
#[path = "../../src/breaker/orders.rs"]
mod orders;
#[path = "../../src/breaker/probe.rs"]
mod probe;
#[allow(dead_code, reason = "only the transitions are checked here")]
#[path = "../../src/breaker/state.rs"]
mod state;
#[path = "../../src/breaker/window.rs"]
mod window;
#[path = "../../src/breaker/word.rs"]
mod word;

mod joined;

mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    };
}

/// Time at which every model starts; nothing is due before.
const START: u64 = 1_000;
/// Long after any open time, long before the end of a lease taken at the same moment.
const DUE: u64 = u64::MAX / 2;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    // A third preemption takes several times as long and has found nothing that two do not.
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn closed(config: BreakerConfig) -> Arc<Machine> {
    Arc::new(Machine::new(config))
}

fn one_failure() -> BreakerConfig {
    BreakerConfig::default().with_failures_in_a_row(1)
}

/// A machine that is open, and one call that was let in before.
fn tripped(config: BreakerConfig) -> (Arc<Machine>, Ticket) {
    let machine = closed(config);
    let stale = call(&machine);
    let trip = call(&machine);
    assert_eq!(machine.settle(trip, Outcome::Failure, || START), Some(State::Open));
    (machine, stale)
}

fn call(machine: &Machine) -> Ticket {
    machine.admit(|| START).expect("the circuit is closed")
}

/// Runs `task` on `threads` threads, the present one among them, and returns what they returned.
fn together<T: 'static>(threads: usize, task: impl Fn() -> T + Clone + 'static) -> Vec<T> {
    let others: Vec<_> = (1..threads).map(|_| thread::spawn(task.clone())).collect();
    let mut results = vec![task()];
    results.extend(others.into_iter().map(|thread| thread.join().unwrap()));
    results
}

fn half_open_admits_exactly(probes: u32) {
    check(move || {
        let (machine, _) = tripped(one_failure().with_probes(probes));
        let admitted: Vec<_> = together(3, {
            let machine = machine.clone();
            move || machine.admit(|| DUE).ok()
        })
        .into_iter()
        .flatten()
        .collect();
        assert_eq!(admitted.len(), probes as usize);
        assert_eq!(machine.state(), State::HalfOpen);
        for (index, probe) in admitted.into_iter().enumerate() {
            let last = index + 1 == probes as usize;
            assert_eq!(
                machine.settle(probe, Outcome::Success, || DUE),
                last.then_some(State::Closed)
            );
        }
    });
}

#[test]
fn half_open_admits_exactly_one() {
    half_open_admits_exactly(1);
}

#[test]
fn half_open_admits_exactly_two() {
    half_open_admits_exactly(2);
}

#[test]
fn probes_that_answer_at_once_admit_no_third() {
    check(|| {
        let (machine, _) = tripped(one_failure().with_probes(2));
        let probes = together(3, {
            let machine = machine.clone();
            move || match machine.admit(|| DUE) {
                Ok(probe) if matches!(probe.entry, Entry::Probe { .. }) => {
                    machine.settle(probe, Outcome::Success, || DUE);
                    1
                }
                // The circuit has closed in the meantime, or both slots are taken.
                Ok(_) | Err(_) => 0,
            }
        });
        assert_eq!(probes.into_iter().sum::<usize>(), 2);
        assert_eq!(machine.state(), State::Closed);
    });
}

#[test]
fn a_failed_probe_restarts_the_timer_for_calls_on_their_way() {
    check(|| {
        let (machine, _) = tripped(one_failure());
        together(3, {
            let machine = machine.clone();
            move || {
                if let Ok(probe) = machine.admit(|| DUE) {
                    machine.settle(probe, Outcome::Failure, || DUE);
                }
            }
        });
        assert_eq!(machine.state(), State::Open);
        let mut rounds = 0;
        machine.publish(|transition| rounds += u32::from(transition.to == State::HalfOpen));
        assert_eq!(rounds, 1, "a call got in before the new open time was over");
    });
}

#[test]
fn a_stale_result_changes_nothing() {
    for outcome in [Outcome::Success, Outcome::Failure] {
        check(move || {
            let (machine, stale) = tripped(one_failure());
            let late = thread::spawn({
                let machine = machine.clone();
                move || assert_eq!(machine.settle(stale, outcome, || DUE), None)
            });
            let probe = machine.admit(|| DUE).expect("the probe is due");
            assert_eq!(machine.state(), State::HalfOpen);
            assert_eq!(machine.settle(probe, Outcome::Success, || DUE), Some(State::Closed));
            late.join().unwrap();
            assert_eq!(machine.state(), State::Closed);
        });
    }
}

#[test]
fn a_result_that_races_the_trip_counts_before_it_or_not_at_all() {
    check(|| {
        let machine = closed(BreakerConfig::default().with_failures_in_a_row(2));
        let (first, second, racing) = (call(&machine), call(&machine), call(&machine));
        machine.settle(first, Outcome::Failure, || START);
        let success = thread::spawn({
            let machine = machine.clone();
            move || machine.settle(racing, Outcome::Success, || START)
        });
        let opened = machine.settle(second, Outcome::Failure, || START) == Some(State::Open);
        assert_eq!(success.join().unwrap(), None);
        // Before: the success has cleared the first failure. After: it was stale.
        assert_eq!(machine.state() == State::Open, opened);
        if !opened {
            let third = call(&machine);
            assert_eq!(machine.settle(third, Outcome::Failure, || START), Some(State::Open));
        }
    });
}

#[test]
fn a_success_that_follows_a_failure_clears_it() {
    check(|| {
        let machine = closed(BreakerConfig::default().with_failures_in_a_row(2));
        let (failing, success) = (call(&machine), call(&machine));
        let failed = thread::spawn({
            let machine = machine.clone();
            move || machine.settle(failing, Outcome::Failure, || START)
        });
        // In parallel to others of the same kind, which must not hide the failure from it.
        let other = call(&machine);
        machine.settle(other, Outcome::Success, || START);
        failed.join().unwrap();
        machine.settle(success, Outcome::Success, || START);
        let next = call(&machine);
        assert_eq!(machine.settle(next, Outcome::Failure, || START), None);
        assert_eq!(machine.state(), State::Closed);
    });
}

#[test]
fn racing_failures_open_it_once() {
    for threads in [2, 3] {
        check(move || {
            let machine = closed(one_failure());
            let opened = together(threads, {
                let machine = machine.clone();
                let ticket = call(&machine);
                move || machine.settle(ticket, Outcome::Failure, || START).is_some()
            });
            assert_eq!(opened.into_iter().filter(|opened| *opened).count(), 1);
            let mut transitions = 0;
            machine.publish(|_| transitions += 1);
            assert_eq!(transitions, 1);
        });
    }
}

#[test]
fn racing_failures_fill_the_window_once() {
    check(|| {
        let config =
            BreakerConfig::default()
                .without_failures_in_a_row()
                .with_failure_rate(1.0, 2, RateWindow::Calls(4));
        let machine = closed(config);
        let opened = together(3, {
            let machine = machine.clone();
            let ticket = call(&machine);
            move || machine.settle(ticket, Outcome::Failure, || START).is_some()
        });
        assert_eq!(opened.into_iter().filter(|opened| *opened).count(), 1);
    });
}

#[test]
fn racing_slow_successes_open_it_once() {
    check(|| {
        let config = BreakerConfig::default().without_failures_in_a_row().with_slow_calls(
            Duration::from_nanos(1),
            1.0,
            2,
            RateWindow::Calls(4),
        );
        let machine = closed(config);
        let opened = together(3, {
            let machine = machine.clone();
            let ticket = call(&machine);
            move || machine.settle(ticket, Outcome::Success, || DUE).is_some()
        });
        assert_eq!(opened.into_iter().filter(|opened| *opened).count(), 1);
        assert_eq!(machine.state(), State::Open);
    });
}

#[test]
fn a_dropped_probe_frees_its_slot() {
    check(|| {
        let (machine, _) = tripped(one_failure());
        let dropped = machine.admit(|| DUE).expect("the probe is due");
        let drops = thread::spawn({
            let machine = machine.clone();
            move || machine.settle(dropped, Outcome::Neutral, || DUE)
        });
        let early = machine.admit(|| DUE);
        assert_eq!(drops.join().unwrap(), None);
        match early {
            Ok(_) => assert!(machine.admit(|| DUE).is_err(), "the slot was given away twice"),
            Err(_) => assert!(machine.admit(|| DUE).is_ok(), "the slot was lost"),
        }
    });
}

#[test]
fn an_expired_probe_races_its_successor_and_loses() {
    check(|| {
        let (machine, _) = tripped(one_failure());
        let lost = machine.admit(|| DUE).expect("the probe is due");
        let later = u64::MAX - 1;
        let answers = thread::spawn({
            let machine = machine.clone();
            move || assert_eq!(machine.settle(lost, Outcome::Failure, move || later), None)
        });
        let successor = machine.admit(move || later).expect("the lease has ended");
        answers.join().unwrap();
        assert!(machine.admit(move || later).is_err(), "one slot, one holder");
        assert_eq!(
            machine.settle(successor, Outcome::Success, || later),
            Some(State::Closed)
        );
    });
}

#[test]
fn transitions_are_published_in_order_and_once() {
    check(|| {
        let (machine, _) = tripped(one_failure());
        let story = Arc::new(LoomMutex::new(Vec::new()));
        together(2, {
            let (machine, story) = (machine.clone(), story.clone());
            move || {
                if let Ok(ticket) = machine.admit(|| DUE) {
                    machine.settle(ticket, Outcome::Success, || DUE);
                }
                machine.publish(|transition| story.lock().unwrap().push((transition.from, transition.to)));
            }
        });
        use State::{Closed, HalfOpen, Open};
        assert_eq!(
            *story.lock().unwrap(),
            [(Closed, Open), (Open, HalfOpen), (HalfOpen, Closed)]
        );
    });
}
