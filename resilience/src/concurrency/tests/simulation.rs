//! A server that collapses under too much work, behind the real state machine. No clock, no thread: each run is
//! the same to the last digit.
//!
//! The server has 8 workers and shares them among all requests in flight. Beyond 8 it pays for each further one (switching
//! contexts, cold caches, contended locks). Clients come five times as fast as it can serve, give up after their timeout
//! and are not told to the server, which goes on working for nobody.
//!
//! `cargo test -p resilience --lib simulation -- --nocapture` prints the table of the book.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
};

use fastrand::Rng;

use super::super::{
    adaptive::Adaptive,
    priority::Priority,
    state::{Arrival, State, Ticket},
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

const WORKERS: f64 = 8.0;
/// What each request beyond the workers costs of the whole, for each of them.
const PENALTY: f64 = 0.25;
/// What a request takes alone, on average.
const SERVICE: u64 = 10 * MS;
/// When a client gives up.
const TIMEOUT: u64 = 100 * MS;
const CAPACITY: f64 = WORKERS * (SECOND / SERVICE) as f64;

#[derive(Clone, Copy)]
struct Scenario {
    limit: u32,
    adaptive: Option<Adaptive>,
    queue: u32,
    queue_timeout: u64,
    /// Arrivals as a multiple of the capacity.
    load: f64,
    work: Work,
    /// From when to when the server is how many times slower.
    slow: (u64, u64, f64),
    /// Whether the server hears of clients that give up, and drops their requests.
    hears: bool,
    /// How long only three tenths of the capacity are asked for, before the load comes.
    calm: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// Between half and one and a half of the average.
    Even,
    /// Exponential: most are short, some are long.
    Varied,
}

impl Scenario {
    fn fixed(limit: u32) -> Self {
        Self {
            limit,
            adaptive: None,
            queue: 8,
            queue_timeout: 20 * MS,
            load: 5.0,
            work: Work::Even,
            slow: (0, 0, 1.0),
            hears: false,
            calm: 0,
            length: 30 * SECOND,
        }
    }

    fn adaptive(ceiling: u32) -> Self {
        Self {
            adaptive: Some(Adaptive::default()),
            ..Self::fixed(ceiling)
        }
    }
}

#[derive(Debug, Default)]
struct Report {
    /// From arrival to answer, of those that were let in, in the order of the answers.
    latencies: Vec<u64>,
    /// Answers within the timeout, by second.
    good: Vec<u32>,
    /// The limit at the end of each window of 100 ms.
    limits: Vec<u32>,
    /// The most that were ever in service.
    peak: u32,
    left_over: u32,
}

impl Report {
    /// Answers in time per second from `from` to `to`, in seconds.
    fn goodput(&self, from: usize, to: usize) -> f64 {
        f64::from(self.good[from..to].iter().sum::<u32>()) / (to - from) as f64
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = (sorted.len() as f64 * share) as usize;
        sorted[index.min(sorted.len() - 1)] as f64 / MS as f64
    }
}

struct Simulation {
    scenario: Scenario,
    rng: Rng,
    now: u64,
    state: State,
    waiting: BTreeMap<Ticket, u64>,
    /// Requests in service by the amount of service at which each is done.
    busy: BTreeSet<(u64, u64)>,
    started: BTreeMap<u64, (u64, u64)>,
    /// Service that each request got so far that was there from the beginning.
    served: u64,
    ids: u64,
    report: Report,
}

impl Simulation {
    fn run(scenario: Scenario) -> Report {
        let mut simulation = Self {
            scenario,
            rng: Rng::with_seed(7),
            now: SECOND,
            state: State::new(scenario.limit, scenario.queue, scenario.adaptive),
            waiting: BTreeMap::new(),
            busy: BTreeSet::new(),
            started: BTreeMap::new(),
            served: 0,
            ids: 0,
            report: Report {
                good: vec![0; (scenario.length / SECOND) as usize + 1],
                ..Report::default()
            },
        };
        simulation.live();
        simulation.report
    }

    fn live(&mut self) {
        let end = SECOND + self.scenario.length;
        let mut arrival = self.now + self.gap();
        let mut look = self.now;
        while arrival < end {
            let next = self.next_end().map_or(arrival, |done| done.min(arrival));
            while look < next {
                self.report.limits.push(self.state.limit());
                look += 100 * MS;
            }
            if next < arrival {
                self.advance(next);
                self.finish();
            } else {
                self.advance(arrival);
                self.arrive();
                arrival += self.gap();
            }
            self.let_in();
        }
        while let Some(done) = self.next_end() {
            self.advance(done);
            self.finish();
            self.let_in();
        }
        self.report.left_over = self.state.in_flight() + self.state.queued() as u32;
    }

    fn gap(&mut self) -> u64 {
        let load = if self.now < SECOND + self.scenario.calm {
            0.3
        } else {
            self.scenario.load
        };
        let mean = SECOND as f64 / (CAPACITY * load);
        (-self.rng.f64().max(1e-12).ln() * mean) as u64 + 1
    }

    fn work(&mut self) -> u64 {
        let mean = SERVICE as f64;
        match self.scenario.work {
            Work::Even => (mean * (0.5 + self.rng.f64())) as u64,
            Work::Varied => (-self.rng.f64().max(1e-12).ln() * mean) as u64 + 1,
        }
    }

    /// How fast each request is served: 1 when it has a worker of its own.
    fn rate(&self) -> f64 {
        let busy = self.busy.len() as f64;
        let excess = (busy - WORKERS).max(0.0);
        let (from, to, factor) = self.scenario.slow;
        let slow = if (from..to).contains(&(self.now - SECOND)) {
            factor
        } else {
            1.0
        };
        (WORKERS / busy.max(1.0)).min(1.0) / (1.0 + PENALTY * excess / WORKERS) / slow
    }

    fn next_end(&self) -> Option<u64> {
        let &(done, _) = self.busy.first()?;
        let left = done.saturating_sub(self.served) as f64 / self.rate();
        Some(self.now + left.ceil() as u64)
    }

    fn advance(&mut self, to: u64) {
        self.served += ((to - self.now) as f64 * self.rate()).round() as u64;
        self.now = to;
    }

    fn arrive(&mut self) {
        let end = self.now + self.scenario.queue_timeout;
        match self.state.arrive(Priority::Default, self.now, end) {
            Ok(Arrival::Admitted) => self.serve(self.now),
            Ok(Arrival::Queued(ticket)) => {
                self.waiting.insert(ticket, self.now);
                assert_eq!(self.state.poll(ticket, Waker::noop()), None);
            }
            Err(_) => {}
        }
    }

    /// Those in the queue that have their answer by now.
    fn let_in(&mut self) {
        if self.scenario.hears {
            self.hang_up();
        }
        let now = self.now;
        for (ticket, came) in std::mem::take(&mut self.waiting) {
            let answer = match self.state.poll(ticket, Waker::noop()) {
                None if came + self.scenario.queue_timeout <= now => Some(self.state.expire(ticket)),
                answer => answer,
            };
            match answer {
                Some(Ok(())) => self.serve(came),
                Some(Err(_)) => {}
                None => drop(self.waiting.insert(ticket, came)),
            }
        }
        drop(self.state.take_aside());
    }

    /// Drops what nobody waits for any more. Arrivals are close enough that this is in time.
    fn hang_up(&mut self) {
        let now = self.now;
        let gone: Vec<_> = self
            .started
            .extract_if(.., |_, (came, _)| *came + TIMEOUT <= now)
            .collect();
        for (id, (_, started)) in gone {
            self.busy.retain(|(_, busy)| *busy != id);
            self.state.cut_off(started, now);
            self.state.release(|| now);
        }
    }

    fn serve(&mut self, came: u64) {
        let done = self.served + self.work();
        self.ids += 1;
        self.busy.insert((done, self.ids));
        self.started.insert(self.ids, (came, self.now));
        self.report.peak = self.report.peak.max(self.busy.len() as u32);
        assert!(self.busy.len() <= self.scenario.limit as usize, "over-admission");
    }

    fn finish(&mut self) {
        let Some((_, id)) = self.busy.pop_first() else { return };
        let (came, started) = self.started.remove(&id).expect("it was started");
        let took = self.now - came;
        self.report.latencies.push(took);
        let second = ((self.now - SECOND) / SECOND) as usize;
        if took <= TIMEOUT
            && let Some(good) = self.report.good.get_mut(second)
        {
            *good += 1;
        }
        self.state.sample(started, self.now, false);
        self.state.release(|| self.now);
    }
}

/// What a request takes when there is nothing to wait for.
fn unloaded(work: Work) -> f64 {
    let scenario = Scenario {
        load: 0.2,
        work,
        ..Scenario::fixed(64)
    };
    Simulation::run(scenario).quantile(0.99)
}

/// Every fixed limit, and then the adaptive one with the widest ceiling of them.
fn table(work: Work) -> (Vec<(u32, Report)>, Report) {
    let fixed = [4, 8, 10, 12, 16, 32, 64]
        .into_iter()
        .map(|limit| {
            let scenario = Scenario {
                work,
                ..Scenario::fixed(limit)
            };
            (limit, Simulation::run(scenario))
        })
        .collect();
    let adaptive = Simulation::run(Scenario {
        work,
        ..Scenario::adaptive(64)
    });
    (fixed, adaptive)
}

#[test]
fn at_five_times_the_capacity_the_adaptive_limit_serves_as_much_as_the_best() {
    for work in [Work::Even, Work::Varied] {
        let unloaded = unloaded(work);
        let (fixed, adaptive) = table(work);
        let end = (Scenario::fixed(1).length / SECOND) as usize;
        let best = fixed
            .iter()
            .map(|(_, report)| report.goodput(0, end))
            .fold(0.0, f64::max);
        println!("{work:?} work, capacity {CAPACITY}/s, unloaded p99 {unloaded:.0} ms");
        println!("| limit | answers in time | of the best | p50 | p99 |");
        let rows = fixed.iter().map(|(limit, report)| (limit.to_string(), report));
        for (name, report) in rows.chain([("adaptive, up to 64".to_owned(), &adaptive)]) {
            let goodput = report.goodput(0, end);
            println!(
                "| {name} | {goodput:.0}/s | {:.0} % | {:.0} ms | {:.0} ms |",
                100.0 * goodput / best,
                report.quantile(0.5),
                report.quantile(0.99),
            );
            assert_eq!(report.left_over, 0);
        }
        assert!(best > 0.95 * CAPACITY, "the table has a limit that fits: {best}");
        assert!(adaptive.goodput(0, end) >= 0.9 * best);
        assert!(adaptive.quantile(0.99) <= 3.0 * unloaded);
        let (_, oversized) = fixed.last().expect("there are rows");
        assert!(oversized.goodput(0, end) < 0.2 * best, "64 is meant to collapse");
    }
}

#[test]
fn constant_overload_does_not_lift_the_baseline() {
    let length = 150 * SECOND;
    let report = Simulation::run(Scenario {
        length,
        load: 2.0,
        ..Scenario::adaptive(256)
    });
    let (early, late) = (report.goodput(0, 30), report.goodput(120, 150));
    assert!(late >= 0.97 * early, "from {early} to {late}");
    let highest = report.limits.iter().skip(50).max();
    assert!(highest <= Some(&14), "{highest:?}");
}

#[test]
fn modest_load_does_not_lift_the_limit() {
    for load in [0.1, 0.5] {
        let report = Simulation::run(Scenario {
            load,
            length: 60 * SECOND,
            ..Scenario::adaptive(256)
        });
        // Bursts fill the limit that it starts with; the most that were ever in service at once set the bound.
        let highest = report.limits.iter().max().copied();
        assert!(
            highest <= Some(report.peak * 5 / 2),
            "{highest:?} at {load}, {} at once",
            report.peak
        );
        let served = report.goodput(0, 60) / (CAPACITY * load);
        assert!(served > 0.98, "{served} of what came at {load}");
    }
}

#[test]
fn it_recovers_from_a_spike() {
    let report = Simulation::run(Scenario {
        slow: (10 * SECOND, 12 * SECOND, 10.0),
        ..Scenario::adaptive(64)
    });
    let (before, after) = (report.goodput(5, 10), report.goodput(14, 19));
    assert!(after >= 0.9 * before, "from {before} to {after}");
}

#[test]
fn it_settles_on_a_server_that_stays_slower() {
    let factor = 3.0;
    let report = Simulation::run(Scenario {
        slow: (10 * SECOND, u64::MAX / 2, factor),
        length: 60 * SECOND,
        ..Scenario::adaptive(64)
    });
    let share = report.goodput(40, 60) * factor / CAPACITY;
    assert!(share >= 0.85, "{share} of what it can do");
}

#[test]
fn a_start_far_above_the_capacity_is_found_out() {
    let report = Simulation::run(Scenario {
        adaptive: Some(Adaptive::default().with_initial(128)),
        ..Scenario::adaptive(128)
    });
    let goodput = report.goodput(20, 30);
    assert!(goodput >= 0.85 * CAPACITY, "{goodput}");
}

#[test]
fn clients_that_give_up_are_no_reason_to_let_in_more() {
    // A quiet service whose limit starts high, and then a crowd: at that limit nobody is served before giving up.
    let crowd = |initial| Scenario {
        adaptive: Some(Adaptive::default().with_initial(initial)),
        calm: 10 * SECOND,
        hears: true,
        ..Scenario::adaptive(128)
    };
    let oversized = Simulation::run(Scenario {
        adaptive: None,
        ..crowd(1)
    });
    assert!(oversized.goodput(15, 30) < 0.1 * CAPACITY, "128 is meant to collapse");
    let adaptive = Simulation::run(crowd(128));
    // At once to what serves most of them, and with the next probe to what serves best.
    assert!(adaptive.goodput(12, 20) >= 0.6 * CAPACITY);
    assert!(adaptive.goodput(25, 30) >= 0.9 * CAPACITY);
}
