//! One test for each thing that breakers elsewhere got wrong, and for the edges of this one.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Barrier,
    time::Duration,
};

use tokio::sync::broadcast::error::TryRecvError;

use crate::{
    breaker::{
        BreakerConfig, CallError, Cause, CircuitBreaker, ConfigError, Outcome, RateWindow, State, state::Machine,
    },
    clock::Clock,
};

const OPEN_FOR: Duration = Duration::from_secs(5);

fn breaker(config: BreakerConfig) -> (CircuitBreaker, Clock) {
    let clock = Clock::manual();
    let breaker = CircuitBreaker::new("test", config).unwrap().with_clock(clock.clone());
    (breaker, clock)
}

fn one_failure() -> BreakerConfig {
    BreakerConfig::default().with_failures_in_a_row(1)
}

/// A breaker that is open, with its probe due.
fn due(config: BreakerConfig) -> (CircuitBreaker, Clock) {
    let (breaker, clock) = breaker(config);
    while !breaker.record_failure() {}
    clock.advance(OPEN_FOR);
    (breaker, clock)
}

#[test]
fn the_default_opens_after_five_failures_in_a_row_for_five_seconds() {
    let (breaker, clock) = breaker(BreakerConfig::default());
    for _ in 0..4 {
        assert!(!breaker.try_acquire().unwrap().failure());
    }
    breaker.try_acquire().unwrap().success();
    for _ in 0..4 {
        assert!(!breaker.try_acquire().unwrap().failure());
    }
    assert!(breaker.try_acquire().unwrap().failure());
    assert_eq!(breaker.open_remaining(), Some(OPEN_FOR));

    clock.advance(OPEN_FOR - Duration::from_nanos(1));
    assert!(!breaker.is_available());
    assert_eq!(
        breaker.try_acquire().unwrap_err().retry_after(),
        Some(Duration::from_nanos(1))
    );
    clock.advance(Duration::from_nanos(1));
    assert!(breaker.is_available());
    assert_eq!(breaker.state(), State::Open, "looking takes no slot");
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.open_remaining(), None);
}

#[test]
fn concurrent_calls_share_the_probes() {
    for probes in [1, 3] {
        let (breaker, _clock) = due(one_failure().with_probes(probes));
        let start = Barrier::new(8);
        let permits: Vec<_> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        (0..50).filter_map(|_| breaker.try_acquire().ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            calls.into_iter().flat_map(|call| call.join().unwrap()).collect()
        });
        assert_eq!(permits.len(), probes as usize);
        assert!(permits.iter().all(|permit| permit.is_probe()));
        assert_eq!(breaker.try_acquire().unwrap_err().retry_after(), None);
        permits.into_iter().for_each(|permit| permit.success());
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn a_succeeded_probe_keeps_its_slot() {
    let (breaker, _clock) = due(one_failure().with_probes(2));
    let slow = breaker.try_acquire().unwrap();
    breaker.try_acquire().unwrap().success();
    assert!(breaker.try_acquire().is_err());
    assert!(slow.failure());
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_dropped_or_neutral_probe_gives_its_slot_back() {
    let (breaker, _clock) = due(one_failure());
    drop(breaker.try_acquire().unwrap());
    breaker.try_acquire().unwrap().neutral();
    assert_eq!(breaker.state(), State::HalfOpen);
    assert!(breaker.is_available());
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_probe_that_never_answers_loses_its_slot_and_its_say() {
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Neutral] {
        let (breaker, clock) = due(one_failure().with_probe_lease(Duration::from_secs(2)));
        let lost = breaker.try_acquire().unwrap();
        clock.advance(Duration::from_secs(2) - Duration::from_nanos(1));
        assert!(breaker.try_acquire().is_err());
        clock.advance(Duration::from_nanos(1));
        let second = breaker.try_acquire().unwrap();
        assert!(!lost.record(outcome));
        assert_eq!(breaker.state(), State::HalfOpen);
        assert!(breaker.try_acquire().is_err(), "the second probe still holds the slot");
        second.success();
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn a_failed_probe_reopens_whatever_the_minimum_volume() {
    let config =
        BreakerConfig::default()
            .without_failures_in_a_row()
            .with_failure_rate(0.5, 100, RateWindow::Calls(100));
    let (breaker, clock) = due(config);
    clock.advance(Duration::from_secs(60));
    assert!(breaker.try_acquire().unwrap().failure());
    assert_eq!(breaker.open_remaining(), Some(OPEN_FOR), "the timer starts again");
}

#[test]
fn results_from_before_the_trip_change_nothing() {
    let (breaker, clock) = breaker(one_failure());
    let late: Vec<_> = (0..4).map(|_| breaker.try_acquire().unwrap()).collect();
    let [good, bad, good_later, bad_later] = late.try_into().unwrap();
    breaker.record_failure();
    assert!(!bad.failure());
    good.success();
    assert_eq!(breaker.open_remaining(), Some(OPEN_FOR));

    clock.advance(OPEN_FOR);
    let probe = breaker.try_acquire().unwrap();
    good_later.success();
    assert_eq!(breaker.state(), State::HalfOpen);
    probe.success();
    assert!(!bad_later.failure());
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_probe_of_an_earlier_round_changes_nothing() {
    let (breaker, clock) = due(one_failure().with_probes(2));
    let old = breaker.try_acquire().unwrap();
    breaker.try_acquire().unwrap().failure();
    clock.advance(OPEN_FOR);
    let probe = breaker.try_acquire().unwrap();
    old.success();
    probe.success();
    assert_eq!(breaker.state(), State::HalfOpen, "one of two has succeeded");
}

#[test]
fn reports_without_a_permit_never_settle_a_probe() {
    let (breaker, _clock) = due(one_failure());
    let probe = breaker.try_acquire().unwrap();
    breaker.record_success();
    assert!(!breaker.record_failure());
    assert_eq!(breaker.state(), State::HalfOpen);
    probe.success();
}

#[test]
fn counts_start_at_zero_after_closing() {
    let config = BreakerConfig::default()
        .with_failures_in_a_row(3)
        .with_failure_rate(0.5, 4, RateWindow::Calls(10));
    let (breaker, _clock) = due(config);
    breaker.try_acquire().unwrap().success();
    for _ in 0..2 {
        assert!(!breaker.record_failure());
    }
    assert!(breaker.record_failure());
}

#[test]
fn one_failure_does_not_open_a_rate_breaker_below_its_volume() {
    let config = BreakerConfig::default().without_failures_in_a_row().with_failure_rate(
        0.5,
        10,
        RateWindow::Time(Duration::from_secs(10)),
    );
    let (breaker, clock) = breaker(config);
    for _ in 0..9 {
        assert!(!breaker.record_failure());
    }
    clock.advance(Duration::from_secs(10));
    assert!(!breaker.record_failure(), "the nine have left the window");
}

#[test]
fn old_successes_leave_the_window() {
    let config =
        BreakerConfig::default()
            .without_failures_in_a_row()
            .with_failure_rate(0.5, 10, RateWindow::Calls(100));
    let (breaker, _clock) = breaker(config);
    (0..10_000).for_each(|_| breaker.record_success());
    let failures = (1..).find(|_| breaker.record_failure());
    assert_eq!(failures, Some(50));
}

#[test]
fn the_open_time_doubles_up_to_its_cap_and_starts_over() {
    let cap = Duration::from_secs(12);
    let (breaker, clock) = breaker(one_failure().with_max_open_for(cap));
    for seconds in [5, 10, 12, 12] {
        breaker.try_acquire().unwrap().failure();
        assert_eq!(breaker.open_remaining(), Some(Duration::from_secs(seconds)));
        clock.advance(Duration::from_secs(seconds));
    }
    breaker.try_acquire().unwrap().success();
    breaker.record_failure();
    assert_eq!(breaker.open_remaining(), Some(OPEN_FOR));
}

#[test]
fn jitter_shortens_reopenings_only() {
    let (breaker, clock) = breaker(one_failure().with_jitter(0.5));
    breaker.record_failure();
    assert_eq!(breaker.open_remaining(), Some(OPEN_FOR));
    for _ in 0..100 {
        clock.advance(OPEN_FOR);
        breaker.try_acquire().unwrap().failure();
        let wait = breaker.open_remaining().unwrap();
        assert!((OPEN_FOR / 2..=OPEN_FOR).contains(&wait), "{wait:?}");
    }
}

#[test]
fn a_supervised_breaker_lets_only_the_prober_in() {
    let (breaker, clock) = breaker(one_failure());
    let breaker = breaker.supervised();
    breaker.try_acquire().unwrap().failure();
    assert!(breaker.try_acquire_probe().is_err());
    assert_eq!(breaker.probe_in(), Some(OPEN_FOR));
    clock.advance(OPEN_FOR);
    assert_eq!(breaker.probe_in(), Some(Duration::ZERO));
    assert!(!breaker.is_available());
    assert!(breaker.try_acquire().is_err());

    let probe = breaker.try_acquire_probe().unwrap();
    assert!(breaker.try_acquire().is_err());
    assert!(breaker.try_acquire_probe().is_err());
    probe.success();
    assert_eq!(breaker.probe_in(), None);
    assert!(breaker.try_acquire().is_ok());
}

#[test]
fn endless_times_do_not_overflow() {
    let forever = one_failure().with_open_for(Duration::MAX);
    let (breaker, clock) = breaker(forever);
    breaker.record_failure();
    clock.advance(Duration::from_secs(1_000_000_000));
    assert!(breaker.try_acquire().is_err());

    let endless_lease = one_failure()
        .with_probe_lease(Duration::MAX)
        .with_max_open_for(Duration::MAX)
        .with_jitter(0.9);
    let (breaker, clock) = due(endless_lease);
    for _ in 0..70 {
        assert!(breaker.try_acquire().unwrap().failure());
        clock.advance(breaker.probe_in().unwrap().min(Duration::from_secs(100_000_000)));
        if !breaker.is_available() {
            break;
        }
    }
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn events_tell_the_whole_story_in_order() {
    let (breaker, clock) = breaker(one_failure());
    let mut events = breaker.events();
    breaker.record_failure();
    clock.advance(OPEN_FOR);
    breaker.try_acquire().unwrap().failure();
    clock.advance(OPEN_FOR);
    breaker.try_acquire().unwrap().success();

    let story: Vec<_> = std::iter::from_fn(|| events.try_recv().ok())
        .map(|event| {
            assert_eq!(&*event.breaker, "test");
            assert_eq!(event.open_for, (event.to == State::Open).then_some(OPEN_FOR));
            (event.from, event.to, event.cause)
        })
        .collect();
    use State::{Closed, HalfOpen, Open};
    let expected = [
        (Closed, Open, Cause::FailuresInARow(1)),
        (Open, HalfOpen, Cause::OpenElapsed),
        (HalfOpen, Open, Cause::ProbeFailed),
        (Open, HalfOpen, Cause::OpenElapsed),
        (HalfOpen, Closed, Cause::ProbesSucceeded(1)),
    ];
    assert_eq!(story, expected);
}

#[test]
fn a_reader_that_sleeps_lags_and_holds_nobody_up() {
    let (breaker, clock) = breaker(one_failure());
    let mut events = breaker.events();
    for _ in 0..100 {
        breaker.try_acquire().unwrap().failure();
        clock.advance(OPEN_FOR);
    }
    assert!(matches!(events.try_recv(), Err(TryRecvError::Lagged(_))));
    assert!(events.try_recv().is_ok());
}

#[test]
fn transitions_leave_nothing_behind() {
    let machine = Machine::new(one_failure().with_probes(2));
    let size_after = |cycles: u64| {
        for _ in 0..cycles {
            let call = machine.admit(|| 0).unwrap();
            machine.settle(call, Outcome::Failure, || 0);
            for _ in 0..2 {
                let probe = machine.admit(|| u64::MAX / 2).unwrap();
                machine.settle(probe, Outcome::Success, || u64::MAX / 2);
            }
            machine.publish(drop);
        }
        format!("{machine:?}").len()
    };
    let before = size_after(10);
    let counters_grew_by = size_after(10_000) - before;
    assert!(counters_grew_by < 20, "{counters_grew_by} more characters of state");
}

#[test]
fn a_poisoned_lock_serves_on() {
    let machine = Machine::new(one_failure());
    let call = machine.admit(|| 0).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        machine.settle(call, Outcome::Failure, || panic!("broken clock"))
    }));
    assert!(panicked.is_err());
    assert_eq!(machine.settle(call, Outcome::Failure, || 0), Some(State::Open));
}

#[test]
fn an_owned_permit_outlives_the_handle() {
    let (breaker, _clock) = breaker(one_failure());
    let other = breaker.clone();
    let permit = breaker.try_acquire_owned().unwrap();
    drop(breaker);
    assert!(std::thread::spawn(move || permit.failure()).join().unwrap());
    assert_eq!(other.state(), State::Open);
}

#[tokio::test]
async fn a_call_counts_its_result() {
    let (breaker, _clock) = breaker(BreakerConfig::default().with_failures_in_a_row(2));
    assert_eq!(breaker.call(async { Ok::<_, u16>(1) }).await, Ok(1));
    for _ in 0..3 {
        let classified = breaker
            .call_with(async { Err::<(), _>(404) }, |_| Outcome::Neutral)
            .await;
        assert_eq!(classified, Err(CallError::Inner(404)));
    }
    assert_eq!(breaker.state(), State::Closed);
    for _ in 0..2 {
        assert_eq!(
            breaker.call(async { Err::<(), _>(500) }).await,
            Err(CallError::Inner(500))
        );
    }
    let refused = breaker
        .call(async { panic!("polled while open") as Result<(), u16> })
        .await
        .unwrap_err();
    assert!(matches!(refused, CallError::Open(open) if open.retry_after() == Some(OPEN_FOR)));
    assert_eq!(refused.into_inner(), None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_is_no_failure() {
    let breaker = CircuitBreaker::new("test", one_failure()).unwrap();
    let hangs = || tokio::time::timeout(Duration::from_secs(1), breaker.call(pending::<Result<(), ()>>()));
    assert!(hangs().await.is_err());
    assert_eq!(breaker.state(), State::Closed);

    breaker.record_failure();
    tokio::time::advance(OPEN_FOR).await;
    assert!(hangs().await.is_err());
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker.call(async { Ok::<_, ()>(()) }).await.unwrap();
    assert_eq!(breaker.state(), State::Closed);
}

#[tokio::test]
async fn a_panic_in_a_call_gives_the_slot_back() {
    let (breaker, _clock) = due(one_failure());
    let probe = breaker.clone();
    let panicked = tokio::spawn(async move { probe.call(async { panic!("in the call") as Result<(), ()> }).await });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(breaker.state(), State::HalfOpen);
    assert!(breaker.is_available());
}

#[test]
fn senseless_settings_are_refused_by_name() {
    let config = BreakerConfig::default;
    let rate = |rate, min_calls, window| config().with_failure_rate(rate, min_calls, window);
    let calls = RateWindow::Calls;
    let cases = [
        (config().without_failures_in_a_row(), "failures_in_a_row"),
        (config().with_failures_in_a_row(0), "failures_in_a_row"),
        (rate(0.0, 1, calls(10)), "failure_rate"),
        (rate(-0.1, 1, calls(10)), "failure_rate"),
        (rate(1.1, 1, calls(10)), "failure_rate"),
        (rate(f64::NAN, 1, calls(10)), "failure_rate"),
        (rate(0.5, 0, calls(10)), "min_calls"),
        (rate(0.5, 11, calls(10)), "min_calls"),
        (rate(0.5, 1, calls(0)), "window"),
        (rate(0.5, 1, calls(u32::MAX)), "window"),
        (rate(0.5, 1, RateWindow::Time(Duration::from_millis(9))), "window"),
        (config().with_open_for(Duration::ZERO), "open_for"),
        (config().with_max_open_for(Duration::from_secs(4)), "max_open_for"),
        (config().with_jitter(1.0), "jitter"),
        (config().with_jitter(-0.1), "jitter"),
        (config().with_jitter(f64::NAN), "jitter"),
        (config().with_probes(0), "probes"),
        (config().with_probe_lease(Duration::ZERO), "probe_lease"),
    ];
    for (config, option) in cases {
        let error: ConfigError = CircuitBreaker::new("test", config).unwrap_err();
        assert_eq!(error.option(), option);
        assert!(error.to_string().contains(&format!("`{option}` ")), "{error}");
    }
}

fn slow_rule() -> BreakerConfig {
    let threshold = Duration::from_millis(100);
    BreakerConfig::default().with_slow_calls(threshold, 0.5, 4, RateWindow::Calls(4))
}

/// A call that succeeds after so many milliseconds. Whether it opened the circuit.
fn succeed_after(breaker: &CircuitBreaker, clock: &Clock, millis: u64) -> bool {
    let permit = breaker.try_acquire().unwrap();
    clock.advance(Duration::from_millis(millis));
    permit.record(Outcome::Success)
}

#[test]
fn slow_successes_open_it_at_their_rate() {
    let (breaker, clock) = breaker(slow_rule());
    let mut events = breaker.events();
    for millis in [500, 500, 99] {
        assert!(!succeed_after(&breaker, &clock, millis), "below the minimum volume");
    }
    assert!(
        !succeed_after(&breaker, &clock, 0),
        "a fast call opens nothing, though 2 of 4 were slow"
    );
    assert!(
        succeed_after(&breaker, &clock, 100),
        "the first slow one has left the window: 2 of 4"
    );
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(events.try_recv().unwrap().cause, Cause::SlowCalls { slow: 2, calls: 4 });
}

#[test]
fn a_slow_probe_reopens_it() {
    let (breaker, clock) = due(slow_rule());
    let mut events = breaker.events();
    assert!(succeed_after(&breaker, &clock, 100));
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(events.try_recv().unwrap().cause, Cause::OpenElapsed);
    assert_eq!(events.try_recv().unwrap().cause, Cause::ProbeSlow);
    clock.advance(OPEN_FOR);
    succeed_after(&breaker, &clock, 99);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_slow_failure_is_both_and_a_cancelled_call_neither() {
    let config = slow_rule().without_failures_in_a_row();
    let (breaker, clock) = breaker(config);
    for _ in 0..10 {
        let cancelled = breaker.try_acquire().unwrap();
        clock.advance(Duration::from_secs(1));
        drop(cancelled);
        breaker.record_success();
    }
    for opens in [false, true] {
        let permit = breaker.try_acquire().unwrap();
        clock.advance(Duration::from_secs(1));
        assert_eq!(permit.failure(), opens);
    }
}

#[test]
fn senseless_slow_rules_are_refused() {
    let slow = |threshold, rate, min_calls, window| {
        let config = BreakerConfig::default().with_slow_calls(threshold, rate, min_calls, window);
        config.validate().map_err(|error| error.option())
    };
    let second = Duration::from_secs(1);
    assert_eq!(slow(second, 1.0, 10, RateWindow::Calls(10)), Ok(()));
    assert_eq!(slow(Duration::ZERO, 1.0, 10, RateWindow::Calls(10)), Err("slow_calls"));
    assert_eq!(slow(second, 0.0, 10, RateWindow::Calls(10)), Err("slow_calls"));
    assert_eq!(slow(second, f64::NAN, 10, RateWindow::Calls(10)), Err("slow_calls"));
    assert_eq!(slow(second, 0.5, 0, RateWindow::Calls(10)), Err("min_calls"));
    assert_eq!(slow(second, 0.5, 11, RateWindow::Calls(10)), Err("min_calls"));
    assert_eq!(slow(second, 0.5, 1, RateWindow::Time(Duration::ZERO)), Err("window"));
    let alone = BreakerConfig::default().without_failures_in_a_row();
    assert!(alone.validate().is_err());
    assert!(
        alone
            .with_slow_calls(second, 0.5, 1, RateWindow::Calls(1))
            .validate()
            .is_ok()
    );
}
