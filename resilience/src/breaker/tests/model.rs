//! The breaker against a model that keeps every outcome in a list and has no cleverness at all.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use crate::{
    breaker::{
        BreakerConfig, Cause, CircuitBreaker, Outcome, Permit, RateWindow, State,
        config::{FailureRate, SlowCalls},
        window::BUCKETS,
    },
    clock::{Clock, nanos},
};

#[derive(Clone, Debug)]
enum Step {
    Acquire,
    AcquireProbe,
    /// Settles one of the outstanding permits.
    Settle(prop::sample::Index, Outcome),
    Drop(prop::sample::Index),
    Report(Outcome),
    Advance(Duration),
    /// To the moment at which a probe is due, or to a nanosecond before it.
    AdvanceToProbe {
        just_before: bool,
    },
}

struct Model {
    config: BreakerConfig,
    supervised: bool,
    now: u64,
    state: State,
    round: u64,
    calls: Vec<Call>,
    due: u64,
    failed_probes: u32,
    probes: Vec<Ticket>,
    succeeded: u32,
    changes: Vec<(State, State, Cause)>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    failed: bool,
    slow: bool,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticket {
    round: u64,
    started: u64,
    serial: usize,
    expires: Option<u64>,
}

impl Model {
    fn admit(&mut self, serial: usize, as_prober: bool) -> Option<Ticket> {
        if !self.would_admit(as_prober) {
            return None;
        }
        if self.state == State::Open {
            self.change(State::HalfOpen, Cause::OpenElapsed);
        }
        let probe = self.state == State::HalfOpen;
        let ticket = Ticket {
            round: self.round,
            started: self.now,
            serial,
            expires: probe.then(|| self.now + nanos(self.config.probe_lease)),
        };
        if probe {
            self.probes.push(ticket);
        }
        Some(ticket)
    }

    fn would_admit(&self, as_prober: bool) -> bool {
        match self.state {
            State::Closed => true,
            _ if self.supervised && !as_prober => false,
            State::Open => self.now >= self.due,
            State::HalfOpen => self.live_probes() + self.succeeded as usize != self.config.probes as usize,
        }
    }

    fn live_probes(&self) -> usize {
        self.probes
            .iter()
            .filter(|probe| probe.expires > Some(self.now))
            .count()
    }

    fn settle(&mut self, ticket: Ticket, outcome: Outcome) -> bool {
        if ticket.round != self.round {
            return false;
        }
        match ticket.expires {
            None => self.count(outcome, ticket.started),
            Some(expires) => {
                self.probes.retain(|probe| probe.serial != ticket.serial);
                if self.now < expires {
                    self.judge_probe(outcome, ticket.started)
                } else {
                    false
                }
            }
        }
    }

    fn is_slow(&self, started: u64) -> bool {
        let took = Duration::from_nanos(self.now - started);
        self.config.slow_calls.is_some_and(|rule| took >= rule.threshold)
    }

    fn judge_probe(&mut self, outcome: Outcome, started: u64) -> bool {
        match outcome {
            Outcome::Neutral => false,
            Outcome::Success if self.is_slow(started) => {
                self.failed_probes += 1;
                self.open(Cause::ProbeSlow)
            }
            Outcome::Failure => {
                self.failed_probes += 1;
                self.open(Cause::ProbeFailed)
            }
            Outcome::Success => {
                self.succeeded += 1;
                if self.succeeded == self.config.probes {
                    self.failed_probes = 0;
                    self.change(State::Closed, Cause::ProbesSucceeded(self.config.probes));
                }
                false
            }
        }
    }

    fn count(&mut self, outcome: Outcome, started: u64) -> bool {
        let failed = match outcome {
            Outcome::Neutral => return false,
            Outcome::Success => false,
            Outcome::Failure => true,
        };
        let slow = self.is_slow(started);
        self.calls.push(Call {
            failed,
            slow,
            at: self.now,
        });
        let failing = if failed { self.too_many_failed() } else { None };
        let slowing = if slow { self.too_many_slow() } else { None };
        failing.or(slowing).is_some_and(|cause| self.open(cause))
    }

    fn inside(&self, window: RateWindow) -> Vec<Call> {
        match window {
            RateWindow::Calls(size) => self.calls.iter().rev().take(size as usize).copied().collect(),
            RateWindow::Time(length) => {
                let width = nanos(length) / BUCKETS as u64;
                let is_inside = |call: &&Call| call.at / width + BUCKETS as u64 > self.now / width;
                self.calls.iter().filter(is_inside).copied().collect()
            }
        }
    }

    fn too_many_slow(&self) -> Option<Cause> {
        let SlowCalls {
            rate,
            min_calls,
            window,
            ..
        } = self.config.slow_calls?;
        let inside = self.inside(window);
        let slow = inside.iter().filter(|call| call.slow).count();
        let enough = inside.len() >= min_calls as usize;
        (enough && slow as f64 / inside.len() as f64 >= rate).then_some(Cause::SlowCalls {
            slow: slow as u64,
            calls: inside.len() as u64,
        })
    }

    fn too_many_failed(&self) -> Option<Cause> {
        let in_a_row = self.calls.iter().rev().take_while(|call| call.failed).count() as u32;
        if self.config.failures_in_a_row.is_some_and(|limit| in_a_row >= limit) {
            return Some(Cause::FailuresInARow(in_a_row));
        }
        let FailureRate {
            rate,
            min_calls,
            window,
        } = self.config.failure_rate?;
        let inside = self.inside(window);
        let failures = inside.iter().filter(|call| call.failed).count();
        let enough = inside.len() >= min_calls as usize;
        (enough && failures as f64 / inside.len() as f64 >= rate).then_some(Cause::FailureRate {
            failures: failures as u64,
            calls: inside.len() as u64,
        })
    }

    fn open(&mut self, cause: Cause) -> bool {
        let mut open_for = self.config.open_for;
        if let Some(cap) = self.config.max_open_for {
            for _ in 0..self.failed_probes {
                open_for = (open_for * 2).min(cap);
            }
        }
        self.due = self.now + nanos(open_for);
        self.change(State::Open, cause);
        true
    }

    fn change(&mut self, to: State, cause: Cause) {
        self.changes.push((self.state, to, cause));
        self.state = to;
        self.round += 1;
        self.calls.clear();
        self.probes.clear();
        self.succeeded = 0;
    }
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Failure),
        2 => Just(Outcome::Success),
        1 => Just(Outcome::Neutral),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Acquire),
        2 => Just(Step::AcquireProbe),
        8 => (any::<prop::sample::Index>(), any_outcome()).prop_map(|(which, outcome)| Step::Settle(which, outcome)),
        1 => any::<prop::sample::Index>().prop_map(Step::Drop),
        2 => any_outcome().prop_map(Step::Report),
        1 => (0u64..80_000_000).prop_map(|step| Step::Advance(Duration::from_nanos(step))),
        2 => any::<bool>().prop_map(|just_before| Step::AdvanceToProbe { just_before }),
    ]
}

prop_compose! {
    fn any_rate()(
        rate in prop::sample::select(vec![0.2, 0.34, 0.5, 0.75, 1.0]),
        min_calls in 1u32..8,
        more in 0u32..12,
        millis in prop::option::of(10u64..300),
    ) -> FailureRate {
        let window = match millis {
            Some(millis) => RateWindow::Time(Duration::from_millis(millis)),
            None => RateWindow::Calls(min_calls + more),
        };
        FailureRate { rate, min_calls, window }
    }
}

prop_compose! {
    fn any_config()(
        failures_in_a_row in prop::option::of(1u32..5),
        failure_rate in prop::option::of(any_rate()),
        slow_calls in prop::option::of((any_rate(), 1u64..60)),
        open_for in 1u64..100,
        cap in prop::option::of(1u64..10),
        probes in 1u32..4,
        lease in 1u64..200,
    ) -> BreakerConfig {
        BreakerConfig {
            failures_in_a_row: if failure_rate.is_none() { failures_in_a_row.or(Some(2)) } else { failures_in_a_row },
            failure_rate,
            slow_calls: slow_calls.map(|(FailureRate { rate, min_calls, window }, millis)| SlowCalls {
                threshold: Duration::from_millis(millis),
                rate,
                min_calls,
                window,
            }),
            open_for: Duration::from_millis(open_for),
            max_open_for: cap.map(|times| Duration::from_millis(open_for * times)),
            jitter: 0.0,
            probes,
            probe_lease: Duration::from_millis(lease),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_breaker_does_what_the_model_does(
        config in any_config(),
        supervised in prop::bool::weighted(0.25),
        steps in vec(any_step(), 1..200),
    ) {
        let clock = Clock::manual();
        let breaker = CircuitBreaker::new("model", config.clone()).unwrap().with_clock(clock.clone());
        let breaker = if supervised { breaker.supervised() } else { breaker };
        let mut events = breaker.events();
        let mut model = Model {
            config,
            supervised,
            now: clock.nanos(),
            state: State::Closed,
            round: 0,
            calls: Vec::new(),
            due: 0,
            failed_probes: 0,
            probes: Vec::new(),
            succeeded: 0,
            changes: Vec::new(),
        };
        let mut outstanding: Vec<(Permit<'_>, Ticket)> = Vec::new();

        for (serial, step) in steps.into_iter().enumerate() {
            match step {
                Step::Acquire | Step::AcquireProbe => {
                    let as_prober = matches!(step, Step::AcquireProbe);
                    let permit = if as_prober { breaker.try_acquire_probe() } else { breaker.try_acquire() };
                    let ticket = model.admit(serial, as_prober);
                    prop_assert_eq!(permit.is_ok(), ticket.is_some());
                    match (permit, ticket) {
                        (Ok(permit), Some(ticket)) => {
                            prop_assert_eq!(permit.is_probe(), ticket.expires.is_some());
                            outstanding.push((permit, ticket));
                        }
                        (Err(refused), _) => {
                            let knows = model.state == State::Open && (as_prober || !supervised);
                            let wait = knows.then(|| Duration::from_nanos(model.due - model.now));
                            prop_assert_eq!(refused.retry_after(), wait);
                        }
                        (Ok(_), None) => unreachable!(),
                    }
                }
                Step::Settle(which, outcome) if !outstanding.is_empty() => {
                    let (permit, ticket) = outstanding.swap_remove(which.index(outstanding.len()));
                    prop_assert_eq!(permit.record(outcome), model.settle(ticket, outcome));
                }
                Step::Drop(which) if !outstanding.is_empty() => {
                    let (permit, ticket) = outstanding.swap_remove(which.index(outstanding.len()));
                    drop(permit);
                    model.settle(ticket, Outcome::Neutral);
                }
                Step::Settle(..) | Step::Drop(_) => {}
                Step::Report(outcome) => {
                    let opened = match outcome {
                        Outcome::Success => { breaker.record_success(); false }
                        Outcome::Failure => breaker.record_failure(),
                        Outcome::Neutral => false,
                    };
                    let expected = model.state == State::Closed && model.count(outcome, model.now);
                    prop_assert_eq!(opened, expected);
                }
                Step::Advance(by) => {
                    clock.advance(by);
                    model.now += nanos(by);
                }
                Step::AdvanceToProbe { just_before } => {
                    let wait = nanos(breaker.probe_in().unwrap_or_default()).saturating_sub(u64::from(just_before));
                    clock.advance(Duration::from_nanos(wait));
                    model.now += wait;
                }
            }
            prop_assert_eq!(breaker.state(), model.state);
            prop_assert_eq!(breaker.is_available(), model.would_admit(false));
            prop_assert_eq!(breaker.probe_in().is_none_or(|wait| wait.is_zero()), model.would_admit(true));
            let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| (event.from, event.to, event.cause)).collect();
            prop_assert_eq!(told, std::mem::take(&mut model.changes));
        }
    }
}
