//! The adaptive limit: what it makes of each sample. Pure; the algorithm is described at [`Adaptive`].

use super::adaptive::Adaptive;
use crate::clock::nanos;

/// Shorter latencies count as this long, in nanoseconds: below, it is the scheduler that is measured.
const SHORTEST: u64 = 100_000;
/// A probe must come below this share of what is known for the next halving.
const GAIN: f64 = 0.9;
/// Below this share of the baseline, latency says that the service has changed.
const CHANGE: f64 = 0.75;
/// Requests in a window: as many as make the median of very different latencies certain to a seventh, or fewer if it took
/// this long in nanoseconds.
const FULL_WINDOW: usize = 100;
const SHORT_WINDOW: usize = 16;
const LONG: u64 = 1_000_000_000;
/// Growth per window, as a share of the limit, and at least one place.
const GROWTH: f64 = 0.1;
/// What is left of the limit when requests fail, and the share of a window that must have failed.
const BACK_OFF: f64 = 0.7;
const FAILING: usize = 10;
/// How many windows lie between two probes, and before the first.
const WINDOWS_BETWEEN_PROBES: u32 = 50;
const WINDOWS_BEFORE_FIRST: u32 = 8;

/// The end of one request's service. Times are nanoseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) started: u64,
    pub(super) ended: u64,
    /// It says that there was too much to do: a timeout.
    pub(super) failed: bool,
    /// Places taken at the end of it, its own among them.
    pub(super) in_flight: u32,
}

#[derive(Debug)]
pub(super) struct Estimator {
    floor: f64,
    ceiling: f64,
    tolerance: f64,
    probe_every: u64,
    limit: f64,
    /// The median latency of a service that is little used; `None` before the first window.
    baseline: Option<f64>,
    /// Until the first sign of overload the limit doubles.
    slow_start: bool,
    probe: Option<Probe>,
    probed_at: Option<u64>,
    /// Windows, and the highest limit, since the last probe.
    windows: u32,
    highest: f64,
    window: Window,
    /// Failures of requests that started before are the same overload, which has been answered.
    backed_off_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The limit before it.
    restore: f64,
    /// The lowest median so far; `None` in its first window.
    lowest: Option<f64>,
}

/// The median of a window, and where it might as well be: within a standard error, by order statistics, so that no
/// distribution is assumed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    low: f64,
    middle: f64,
    high: f64,
}

#[derive(Debug, Default)]
struct Window {
    /// When the present limit came into force.
    since: u64,
    /// When the window before it ended.
    opened: u64,
    latencies: Vec<u64>,
    failures: usize,
    /// Latencies of requests that were given up.
    cut_off: usize,
    /// The most places that were taken.
    peak: u32,
}

impl Estimator {
    pub(super) fn new(config: Adaptive, ceiling: u32) -> Self {
        Self {
            floor: f64::from(config.floor),
            ceiling: f64::from(ceiling),
            tolerance: config.tolerance,
            probe_every: nanos(config.probe_every),
            limit: f64::from(config.initial.clamp(config.floor, ceiling)),
            baseline: None,
            slow_start: true,
            probe: None,
            probed_at: None,
            windows: 0,
            highest: 0.0,
            window: Window::default(),
            backed_off_at: 0,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        // Between floor and ceiling, which are whole.
        self.limit as u32
    }

    pub(super) fn record(&mut self, sample: Sample) {
        self.follow(sample.ended);
        self.window.peak = self.window.peak.max(sample.in_flight);
        if sample.failed {
            self.window.failures += usize::from(sample.started >= self.backed_off_at);
            if self.window.failures > FULL_WINDOW / FAILING {
                self.back_off(sample.ended);
            }
        } else if sample.started >= self.window.since {
            let latency = sample.ended.saturating_sub(sample.started).max(SHORTEST);
            self.measured(latency, sample.ended);
        }
    }

    /// A request that was given up before it was done: it would have taken longer than it did. That says something only
    /// where it had its time already; an impatient client teaches nothing.
    pub(super) fn cut_off(&mut self, started: u64, ended: u64, in_flight: u32) {
        self.follow(ended);
        let latency = ended.saturating_sub(started);
        let is_late = self
            .baseline
            .is_some_and(|known| latency as f64 >= known * self.tolerance);
        if is_late && started >= self.window.since {
            self.window.peak = self.window.peak.max(in_flight);
            self.window.cut_off += 1;
            self.measured(latency, ended);
        }
    }

    fn measured(&mut self, latency: u64, now: u64) {
        self.window.latencies.push(latency);
        if self.window.is_over(now) {
            self.end_window(now);
        }
    }

    /// A clock that went back must not leave a window that waits for the time to return.
    fn follow(&mut self, now: u64) {
        self.window.since = self.window.since.min(now);
        self.window.opened = self.window.opened.min(now);
        self.backed_off_at = self.backed_off_at.min(now);
        self.probed_at = self.probed_at.map(|at| at.min(now));
    }

    fn end_window(&mut self, now: u64) {
        let median = Median::of(&mut self.window.latencies);
        self.windows = self.windows.saturating_add(1);
        // The median is beyond what was seen: no baseline, and no limit to go back to.
        let is_blind = self.window.cut_off * 2 >= self.window.latencies.len();
        let limit = match self.probe {
            Some(_) if is_blind => {
                self.probe = None;
                self.probed_at = Some(now);
                self.windows = 0;
                self.limit
            }
            Some(probe) => self.probe_on(probe, median, now),
            None => self.adjust(median, now),
        };
        self.set(limit, now);
    }

    fn adjust(&mut self, median: Median, now: u64) -> f64 {
        let known = self.baseline.unwrap_or(median.middle);
        // A service that is much faster than it can be, or still slow at half the limit, is not the one that was measured.
        let mut is_another = median.high < known * CHANGE;
        // Half the way, and only if it is no chance.
        let baseline = if median.high < known {
            f64::midpoint(known, median.middle)
        } else {
            known
        };
        self.baseline = Some(baseline);
        let peak = f64::from(self.window.peak);
        let gradient = (self.tolerance * baseline / median.low).clamp(0.5, 1.0);
        let mut limit = self.limit;
        // A limit that is not nearly used has nothing to do with the latency, and grows for nobody.
        if peak >= limit / 2.0 {
            let slowed = gradient < 1.0;
            let growth = match peak >= limit * 0.8 {
                true if self.slow_start && !slowed => limit,
                // Also while it shrinks, if less, so that a run of bad luck does not end at the floor.
                true if slowed => (limit * GROWTH).max(1.0) / 2.0,
                true => (limit * GROWTH).max(1.0),
                false => 0.0,
            };
            limit = (limit * gradient + growth).clamp(self.floor, self.ceiling);
            self.slow_start &= !slowed;
            self.highest = self.highest.max(limit);
            is_another |= slowed && limit < self.highest / 2.0;
        }
        if is_another || self.probe_is_due(now) {
            self.probe = Some(Probe {
                restore: limit,
                lowest: None,
            });
            limit /= 2.0;
        }
        limit
    }

    fn probe_is_due(&self, now: u64) -> bool {
        match self.probed_at {
            Some(at) => self.windows >= WINDOWS_BETWEEN_PROBES && now.saturating_sub(at) >= self.probe_every,
            // The first baseline may have been taken in the middle of an overload.
            None => !self.slow_start || self.windows >= WINDOWS_BEFORE_FIRST,
        }
    }

    /// Goes on halving while it makes the service faster, then takes what was measured for the baseline.
    fn probe_on(&mut self, probe: Probe, median: Median, now: u64) -> f64 {
        let known = self.baseline.unwrap_or(median.middle);
        let best = probe.lowest.unwrap_or(known);
        if median.high < best * GAIN && self.limit > self.floor {
            self.probe = Some(Probe {
                lowest: Some(median.middle),
                ..probe
            });
            return self.limit / 2.0;
        }
        let baseline = match probe.lowest {
            Some(lowest) => lowest.min(median.middle),
            None if (CHANGE..=1.0 / CHANGE).contains(&(median.middle / known)) => f64::midpoint(known, median.middle),
            None => median.middle,
        };
        self.baseline = Some(baseline);
        self.probe = None;
        self.probed_at = Some(now);
        self.windows = 0;
        self.highest = probe.restore;
        if baseline < known * GAIN {
            // The old limit was built on a wrong baseline: start over from here.
            self.slow_start = true;
            (self.limit * 2.0).min(probe.restore)
        } else {
            probe.restore
        }
    }

    fn back_off(&mut self, now: u64) {
        let limit = self.probe.take().map_or(self.limit, |probe| probe.restore);
        self.slow_start = false;
        self.backed_off_at = now;
        self.set(limit * BACK_OFF, now);
    }

    fn set(&mut self, limit: f64, now: u64) {
        let before = self.limit();
        self.limit = limit.clamp(self.floor, self.ceiling);
        if self.limit() != before {
            self.window.since = now;
        }
        self.window.opened = now;
        self.window.latencies.clear();
        self.window.failures = 0;
        self.window.cut_off = 0;
        self.window.peak = 0;
    }
}

impl Window {
    fn is_over(&self, now: u64) -> bool {
        match self.latencies.len() {
            ..SHORT_WINDOW => false,
            SHORT_WINDOW..FULL_WINDOW => now.saturating_sub(self.opened) >= LONG,
            _ => true,
        }
    }
}

impl Median {
    /// `latencies` must not be empty.
    fn of(latencies: &mut [u64]) -> Self {
        latencies.sort_unstable();
        let middle = latencies.len() / 2;
        let error = (latencies.len() as f64).sqrt() / 2.0;
        let at = |index: usize| latencies[index.min(latencies.len() - 1)] as f64;
        Self {
            low: at(middle.saturating_sub(error as usize)),
            middle: at(middle),
            high: at(middle + error as usize),
        }
    }
}
