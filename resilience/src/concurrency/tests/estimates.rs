//! What the estimator makes of odd samples. How it fares as a whole is shown by the simulation.

use super::super::{
    adaptive::Adaptive,
    estimator::{Estimator, Sample},
};

const MS: u64 = 1_000_000;

struct Service {
    estimator: Estimator,
    now: u64,
}

impl Service {
    fn new(adaptive: Adaptive, ceiling: u32) -> Self {
        Self {
            estimator: Estimator::new(adaptive, ceiling),
            now: 1_000 * MS,
        }
    }

    /// So many requests that take so long, as many at once as the limit lets in.
    fn serve(&mut self, requests: usize, latency: u64, failed: bool) -> u32 {
        for _ in 0..requests {
            self.one(latency, failed, self.estimator.limit());
        }
        self.estimator.limit()
    }

    fn one(&mut self, latency: u64, failed: bool, in_flight: u32) {
        let started = self.now;
        self.now += latency;
        self.estimator.record(Sample {
            started,
            ended: self.now,
            failed,
            in_flight,
        });
    }
}

#[test]
fn it_starts_between_floor_and_ceiling() {
    for (floor, initial, ceiling, limit) in [(1, 8, 64, 8), (1, 8, 4, 4), (16, 8, 64, 16), (2, 1, 2, 2)] {
        let config = Adaptive::default().with_floor(floor).with_initial(initial);
        assert_eq!(Estimator::new(config, ceiling).limit(), limit);
    }
}

#[test]
fn a_steady_service_grows_to_the_ceiling_and_no_further() {
    let mut service = Service::new(Adaptive::default(), 64);
    assert_eq!(service.serve(500, 10 * MS, false), 64);
    // Every other one may be a probe.
    for _ in 0..200 {
        assert!(service.serve(100, 10 * MS, false) <= 64);
    }
}

#[test]
fn a_probe_restores_the_limit() {
    let mut service = Service::new(Adaptive::default(), 64);
    let limits: Vec<_> = (0..1_000).map(|_| service.serve(20, 10 * MS, false)).collect();
    let settled = &limits[100..];
    assert!(settled.contains(&32), "it probes");
    assert!(settled.iter().all(|limit| [32, 64].contains(limit)), "{settled:?}");
}

#[test]
fn a_slower_service_falls_to_the_floor_at_worst() {
    let mut service = Service::new(Adaptive::default().with_floor(3), 64);
    service.serve(500, 10 * MS, false);
    let mut latency = 10 * MS;
    for _ in 0..20 {
        latency *= 2;
        assert!(service.serve(400, latency, false) >= 3);
    }
}

#[test]
fn failures_alone_shrink_it_once_per_generation() {
    let mut service = Service::new(Adaptive::default(), 64);
    service.serve(500, 10 * MS, false);
    let started = service.now;
    service.now += 2_000 * MS;
    // All 64 started together: one overload, one answer.
    for _ in 0..64 {
        service.estimator.record(Sample {
            started,
            ended: service.now,
            failed: true,
            in_flight: 64,
        });
    }
    assert_eq!(service.estimator.limit(), 44);
    for _ in 0..40 {
        service.serve(20, 100 * MS, true);
    }
    assert_eq!(service.estimator.limit(), 1);
    assert_eq!(service.serve(30_000, 10 * MS, false), 64, "it comes back");
}

#[test]
fn a_failure_now_and_then_changes_nothing() {
    let mut service = Service::new(Adaptive::default(), 64);
    service.serve(500, 10 * MS, false);
    for _ in 0..200 {
        service.serve(30, 10 * MS, false);
        assert!([32, 64].contains(&service.serve(1, 10 * MS, true)));
    }
}

#[test]
fn one_slow_answer_in_ten_changes_nothing() {
    let mut service = Service::new(Adaptive::default(), 64);
    service.serve(500, 10 * MS, false);
    for _ in 0..500 {
        service.serve(9, 10 * MS, false);
        assert!([32, 64].contains(&service.serve(1, 500 * MS, false)));
    }
}

#[test]
fn work_that_takes_no_time_is_no_reason_to_shed() {
    let mut service = Service::new(Adaptive::default(), 64);
    for latency in [0, 1, 50_000, 0, 99_999].into_iter().cycle().take(10_000) {
        service.serve(1, latency, false);
    }
    assert_eq!(service.serve(100, 0, false), 64);
}

#[test]
fn a_clock_that_jumps_does_no_lasting_harm() {
    let mut service = Service::new(Adaptive::default(), 64);
    service.serve(500, 10 * MS, false);
    for jump in [u64::MAX / 2, 3, u64::MAX, 0, 1_000 * MS] {
        // A whole generation that was under way across the jump, and its end before its start when that went back.
        let started = service.now;
        service.now = jump;
        for _ in 0..64 {
            service.estimator.record(Sample {
                started,
                ended: service.now,
                failed: false,
                in_flight: 64,
            });
        }
        service.now = service.now.min(u64::MAX / 2);
        service.serve(10_000, 10 * MS, false);
        let settled: Vec<_> = (0..100).map(|_| service.serve(20, 10 * MS, false)).collect();
        assert!(settled.contains(&64), "after {jump}: {settled:?}");
    }
}

#[test]
fn who_leaves_early_teaches_nothing_and_who_leaves_late_does() {
    let mut service = Service::new(Adaptive::default(), 64);
    let limit = service.serve(500, 10 * MS, false);
    let leave = |service: &mut Service, after: u64| {
        for _ in 0..300 {
            let (started, in_flight) = (service.now, service.estimator.limit());
            service.now += after;
            service.estimator.cut_off(started, service.now, in_flight);
        }
    };
    leave(&mut service, MS);
    assert_eq!(service.estimator.limit(), limit);
    leave(&mut service, 100 * MS);
    assert!(service.estimator.limit() <= limit / 4);
    // What was never answered is no baseline: the service is as fast as it was.
    for _ in 0..60 {
        service.serve(100, 10 * MS, false);
    }
    assert!(service.estimator.limit() >= limit / 2);
}
