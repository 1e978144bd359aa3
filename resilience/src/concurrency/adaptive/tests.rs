//! The limit beside simulated services: no clock, no thread, the same numbers every time.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// A service of some workers that share their time evenly among all that are in flight, and lose some of it to switching
/// between them.
struct Service {
    workers: f64,
    /// Share of the time that is lost for each that is in flight beyond the workers.
    switching: f64,
    /// How long the work of one takes, when nobody shares: from and to, in nanoseconds.
    work: (f64, f64),
}

/// What came of a run.
#[derive(Debug)]
struct Run {
    /// Answers a second that were in time for their callers.
    goodput: f64,
    /// In milliseconds, of all that were admitted and in time or not.
    p99: f64,
    /// At the end.
    limit: u32,
}

enum Limit {
    Fixed(u32),
    Adaptive(Limiter),
}

/// Callers come at random, `rate` a second, whatever becomes of the others, and each waits for 100 ms.
fn run(service: &Service, rate: f64, seconds: u64, mut limit: Limit) -> Run {
    let mut random = fastrand::Rng::with_seed(7);
    let mut next_arrival = 0.0;
    let mut now = 0.0;
    // Work left, and when it began.
    let mut in_flight: Vec<(f64, f64)> = Vec::new();
    let mut latencies = Vec::new();
    let mut in_time = 0_u32;
    let end = seconds as f64 * 1e9;
    // The first tenth is for the limit to settle.
    let counts_from = end / 10.0;
    while now < end {
        let sharing = in_flight.len() as f64;
        let excess = (sharing - service.workers).max(0.0);
        let speed = (service.workers / sharing.max(service.workers)) / (1.0 + service.switching * excess);
        let first = (0..in_flight.len()).min_by(|&a, &b| in_flight[a].0.total_cmp(&in_flight[b].0));
        let done_at = first.map_or(f64::INFINITY, |first| now + in_flight[first].0 / speed);
        let event = done_at.min(next_arrival);
        for (left, _) in &mut in_flight {
            *left -= (event - now) * speed;
        }
        now = event;
        if event == done_at {
            let (_, began) = in_flight.swap_remove(first.expect("it is done"));
            let took = now - began;
            if now > counts_from {
                latencies.push(took);
                in_time += u32::from(took <= 100.0 * MS as f64);
            }
            if let Limit::Adaptive(limiter) = &mut limit {
                limiter.learn(now as u64, took as u64, in_flight.len() as u32 + 1, Outcome::Success);
            }
        } else {
            next_arrival = now - random.f64().max(f64::MIN_POSITIVE).ln() * 1e9 / rate;
            let slots = match &limit {
                Limit::Fixed(slots) => *slots,
                Limit::Adaptive(limiter) => limiter.limit(),
            };
            if in_flight.len() < slots as usize {
                let (from, to) = service.work;
                in_flight.push((from + random.f64() * (to - from), now));
            }
        }
    }
    latencies.sort_by(f64::total_cmp);
    Run {
        goodput: f64::from(in_time) / ((end - counts_from) / 1e9),
        p99: latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default() / MS as f64,
        limit: match limit {
            Limit::Fixed(slots) => slots,
            Limit::Adaptive(limiter) => limiter.limit.round() as u32,
        },
    }
}

/// 8 workers, 5 to 15 ms each: 800 a second at best.
const SERVICE: Service = Service {
    workers: 8.0,
    switching: 0.02,
    work: (5e6, 15e6),
};

fn adaptive(ceiling: u32) -> Limit {
    Limit::Adaptive(Limiter::new(1, ceiling))
}

#[test]
fn at_five_times_the_load_goodput_and_latency_stand_where_a_fixed_limit_collapses() {
    let unloaded = run(&SERVICE, 100.0, 20, Limit::Fixed(512));
    let fixed = [4, 6, 8, 10, 12, 16, 24, 32].map(|slots| run(&SERVICE, 4_000.0, 20, Limit::Fixed(slots)));
    let best = fixed.iter().map(|run| run.goodput).fold(0.0, f64::max);
    let oversized = run(&SERVICE, 4_000.0, 20, Limit::Fixed(512));
    println!("unloaded {unloaded:?}\noversized {oversized:?}\nbest fixed {best:.0}/s");
    for ceiling in [32, 64, 512, 10_000] {
        let adaptive = run(&SERVICE, 4_000.0, 20, adaptive(ceiling));
        println!("adaptive up to {ceiling}: {adaptive:?}");
        assert!(adaptive.goodput >= 0.9 * best, "{adaptive:?} beside {best}");
        assert!(adaptive.p99 <= 3.0 * unloaded.p99, "{adaptive:?} beside {unloaded:?}");
    }
    assert!(oversized.goodput < 0.1 * best, "{oversized:?}");
}

#[test]
fn a_modest_load_does_not_raise_the_limit() {
    let modest = run(&SERVICE, 200.0, 60, adaptive(512));
    assert_eq!(modest.limit, 20, "where it began: {modest:?}");
    assert!(modest.goodput > 195.0, "nobody is shed: {modest:?}");
}

#[test]
fn a_large_service_is_let_grow_to_what_it_can_do() {
    let large = Service {
        workers: 200.0,
        switching: 0.0,
        work: (5e6, 15e6),
    };
    let adaptive = run(&large, 40_000.0, 5, adaptive(1_000));
    let best = run(&large, 40_000.0, 5, Limit::Fixed(240));
    assert!(adaptive.goodput >= 0.9 * best.goodput, "{adaptive:?} beside {best:?}");
}

/// Feeds so many windows of one latency, with all slots in use.
fn feed(limiter: &mut Limiter, now: &mut u64, windows: u32, latency: impl Fn(u32) -> u64) {
    for _ in 0..windows {
        for _ in 0..20 {
            *now += WINDOW / 20 + 1;
            let slots = limiter.limit();
            limiter.learn(*now, latency(slots), slots, Outcome::Success);
        }
    }
}

#[test]
fn a_spike_passes_and_a_service_that_is_slower_for_good_is_believed() {
    let (mut limiter, mut now) = (Limiter::new(1, 64), MS);
    feed(&mut limiter, &mut now, 50, |_| 10 * MS);
    assert_eq!(limiter.limit(), 64);
    feed(&mut limiter, &mut now, 10, |_| 200 * MS);
    assert!(limiter.limit() < 16, "{limiter:?}");
    feed(&mut limiter, &mut now, 60, |_| 10 * MS);
    assert_eq!(limiter.limit(), 64, "the spike is over");
    // Twice as slow, at any number of slots: congestion it is not.
    feed(&mut limiter, &mut now, 400, |_| 30 * MS);
    assert_eq!(limiter.limit(), 64);
}

#[test]
fn lasting_overload_never_becomes_the_norm() {
    // Latency is the number of slots over the two that the service has: an hour of it.
    let (mut limiter, mut now) = (Limiter::new(1, 1_000), MS);
    let mut highest = 0;
    for minute in 0..60 {
        feed(&mut limiter, &mut now, 600, |slots| u64::from(slots.max(2)) * 5 * MS);
        if minute > 0 {
            highest = highest.max(limiter.limit());
        }
    }
    assert!(highest <= 8, "{highest}");
}

#[test]
fn time_outs_lower_it_whatever_the_latency_says() {
    let (mut limiter, mut now) = (Limiter::new(4, 64), MS);
    feed(&mut limiter, &mut now, 50, |_| 10 * MS);
    for _ in 0..100 {
        for _ in 0..10 {
            now += WINDOW / 10 + 1;
            limiter.learn(now, 0, 64, Outcome::Failure);
        }
    }
    assert_eq!(limiter.limit(), 4, "the floor");
    feed(&mut limiter, &mut now, 100, |_| 10 * MS);
    assert_eq!(limiter.limit(), 64, "and up again");
}

proptest! {
    #[test]
    fn whatever_it_is_told_it_stays_within_its_bounds(
        floor in 1_u32..50,
        more in 0_u32..1_000,
        told in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), 0_u8..3), 1..500),
    ) {
        let ceiling = floor + more;
        let mut limiter = Limiter::new(floor, ceiling);
        for (now, took, in_flight, outcome) in told {
            let outcome = [Outcome::Success, Outcome::Failure, Outcome::Neutral][usize::from(outcome)];
            limiter.learn(now, took, in_flight, outcome);
            prop_assert!((floor..=ceiling).contains(&limiter.limit()), "{limiter:?}");
        }
    }
}
