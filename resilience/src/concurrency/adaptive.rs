//! A limit that follows latency.
//!
//! A gradient limit, as Netflix's concurrency-limits has it (`Gradient2Limit`, after TCP Vegas): the limit is multiplied by
//! how much slower work has become than it is at its best, and gains a little headroom whenever it is used up. Two things
//! differ, since the published ones do not hold under lasting overload:
//!
//! - The best is not an average that creeps up with the overload, but the lowest mean of the last two epochs (10 s each).
//! - An epoch that begins with all slots in use begins with a look at a quarter of them, for two windows (of 100 ms): so the
//!   best is measured where there is no congestion, and a service that has become slower for good is believed.
//!
//! It begins low, with such a look, and doubles until it first meets congestion (TCP's slow start): a service that starts
//! under overload does not begin by collapsing, and one that can do more is let do it within a second.
//!
//! Only work is measured, never the wait in a queue. A time-out lowers the limit by a tenth, once a window, whatever the
//! latency says.
//!
//! The crate `congestion-limiter` (0.1.0, its only release) has several such algorithms. Their updates are async behind a
//! lock of their own, and under constant overload their baseline becomes the overload's, so that none is used here.

use crate::breaker::Outcome;

/// How much slower than at its best work may be before the limit falls.
const TOLERANCE: f64 = 1.5;

/// The limit falls by no more than this in one window.
const STEEPEST: f64 = 0.5;

/// Where it begins.
const START: f64 = 20.0;

/// What a window that saw a time-out leaves of the limit.
const BACKOFF: f64 = 0.9;

/// The limit grows only while more than this share of it is in use.
const IN_USE: f64 = 0.8;

/// Length of a window and of an epoch, in nanoseconds.
const WINDOW: u64 = 100_000_000;
const EPOCH: u64 = 100 * WINDOW;

/// Fewer samples say little: the window goes on, up to ten times its length.
const SAMPLES_MIN: u32 = 10;

#[derive(Debug)]
pub(super) struct Limiter {
    floor: f64,
    ceiling: f64,
    limit: f64,
    window: Window,
    /// The lowest mean of this epoch and of the one before.
    best: f64,
    best_before: f64,
    epoch_ends: u64,
    look: Look,
    /// It has met no congestion so far.
    is_starting: bool,
}

/// Whether fewer slots are given out for a moment, to see what latency is without congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// All slots are given out.
    None,
    /// What began before is still in flight.
    Begins,
    /// What is measured now counts.
    Measures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: u64,
    latency: f64,
    successes: u32,
    failures: u32,
    most_in_flight: u32,
}

impl Limiter {
    /// A limit between `floor` and `ceiling`.
    pub(super) fn new(floor: u32, ceiling: u32) -> Self {
        let (floor, ceiling) = (f64::from(floor), f64::from(ceiling));
        Self {
            floor,
            ceiling,
            limit: START.clamp(floor, ceiling),
            window: Window::default(),
            best: f64::INFINITY,
            best_before: f64::INFINITY,
            epoch_ends: 0,
            look: Look::Begins,
            is_starting: true,
        }
    }

    /// How many slots there are now.
    pub(super) fn limit(&self) -> u32 {
        let limit = match self.look {
            Look::None => self.limit,
            Look::Begins | Look::Measures => (self.limit / 4.0).max(self.floor),
        };
        // Between 1 and the ceiling, which is a u32.
        limit.round().max(1.0) as u32
    }

    /// Takes what came of some work, how long it took, and how many were in flight at its end, all as of `now`, in
    /// nanoseconds. The new limit, if it has changed.
    pub(super) fn learn(&mut self, now: u64, took: u64, in_flight: u32, outcome: Outcome) -> Option<u32> {
        match outcome {
            Outcome::Success => {
                self.window.successes += 1;
                self.window.latency += took as f64;
            }
            Outcome::Failure => self.window.failures += 1,
            Outcome::Neutral => return None,
        }
        self.window.most_in_flight = self.window.most_in_flight.max(in_flight);
        if self.window.began == 0 {
            // The first ever. A window that has not begun would be over at once.
            self.window.began = now.max(1);
            self.epoch_ends = now.saturating_add(EPOCH);
        }
        let elapsed = now.saturating_sub(self.window.began);
        let enough = self.window.successes + self.window.failures >= SAMPLES_MIN;
        if elapsed < WINDOW || (!enough && elapsed < 10 * WINDOW) {
            return None;
        }
        let before = self.limit();
        let over = std::mem::take(&mut self.window);
        self.window.began = now;
        self.close(over, now);
        let after = self.limit();
        (after != before).then_some(after)
    }

    fn close(&mut self, window: Window, now: u64) {
        let mean = (window.successes > 0).then(|| (window.latency / f64::from(window.successes)).max(1.0));
        match self.look {
            Look::Begins => {
                self.look = Look::Measures;
                return;
            }
            Look::Measures => {
                self.look = Look::None;
                self.best = mean.unwrap_or(f64::INFINITY);
                return;
            }
            Look::None => {}
        }
        self.best = mean.map_or(self.best, |mean| mean.min(self.best));
        let is_used_up = f64::from(window.most_in_flight) >= IN_USE * self.limit;
        let mut limit = self.limit;
        if let Some(mean) = mean {
            let gradient = (TOLERANCE * self.best.min(self.best_before) / mean).clamp(STEEPEST, 1.0);
            self.is_starting &= gradient >= 1.0;
            let headroom = if self.is_starting {
                limit
            } else {
                (limit.sqrt() / 2.0).max(1.0)
            };
            let aim = limit * gradient + headroom;
            // A modest load says nothing about what a larger one would do.
            if is_used_up || aim < limit {
                limit = aim;
            }
        }
        if window.failures > 0 {
            self.is_starting = false;
            limit = limit.min(self.limit * BACKOFF);
        }
        self.limit = limit.clamp(self.floor, self.ceiling);
        if now >= self.epoch_ends {
            self.epoch_ends = now.saturating_add(EPOCH);
            self.best_before = std::mem::replace(&mut self.best, f64::INFINITY);
            if is_used_up {
                // The one before is what is in doubt.
                self.best_before = f64::INFINITY;
                self.look = Look::Begins;
            }
        }
    }
}

#[cfg(test)]
mod tests;
