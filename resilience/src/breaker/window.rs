//! Sliding windows over calls, each marked or not (as failed, as slow); every operation is O(1).

use super::config::RateWindow;
use crate::clock::nanos;

/// Buckets of a time window.
pub(super) const BUCKETS: usize = 10;

/// What a window holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) marked: u64,
}

impl Counts {
    /// The share of calls that are marked; 0 without calls.
    pub(super) fn rate(self) -> f64 {
        // A division of two integers rounds like the literal it is compared with: 7 of 100 is 0.07. A product does not.
        if self.calls == 0 {
            0.0
        } else {
            self.marked as f64 / self.calls as f64
        }
    }

    fn add(&mut self, marked: bool) {
        self.calls += 1;
        self.marked += u64::from(marked);
    }

    fn subtract(&mut self, gone: Self) {
        self.calls -= gone.calls;
        self.marked -= gone.marked;
    }
}

/// Recent calls, old ones dropping out by themselves.
#[derive(Clone, Debug)]
pub(super) enum Window {
    Calls(CallWindow),
    Time(TimeWindow),
}

impl Window {
    pub(super) fn new(window: RateWindow) -> Self {
        match window {
            RateWindow::Calls(size) => Self::Calls(CallWindow::new(size)),
            RateWindow::Time(length) => Self::Time(TimeWindow::new(nanos(length))),
        }
    }

    /// Adds a call. Only a time window asks for the time.
    pub(super) fn record(&mut self, marked: bool, now: impl FnOnce() -> u64) {
        match self {
            Self::Calls(window) => window.record(marked),
            Self::Time(window) => window.record(marked, now()),
        }
    }

    /// What the window held when it last recorded.
    pub(super) fn counts(&self) -> Counts {
        match self {
            Self::Calls(window) => window.counts,
            Self::Time(window) => window.counts,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Calls(window) => window.clear(),
            Self::Time(window) => window.clear(),
        }
    }
}

/// The last `size` calls: a ring of one bit a call.
#[derive(Clone, Debug)]
pub(super) struct CallWindow {
    marks: Box<[u64]>,
    size: u32,
    next: u32,
    counts: Counts,
}

impl CallWindow {
    fn new(size: u32) -> Self {
        Self {
            marks: vec![0; size.div_ceil(u64::BITS) as usize].into_boxed_slice(),
            size,
            next: 0,
            counts: Counts::default(),
        }
    }

    fn record(&mut self, marked: bool) {
        let word = &mut self.marks[(self.next / u64::BITS) as usize];
        let bit = 1 << (self.next % u64::BITS);
        if self.counts.calls == u64::from(self.size) {
            self.counts.subtract(Counts {
                calls: 1,
                marked: u64::from(*word & bit != 0),
            });
        }
        if marked {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.counts.add(marked);
        self.next = if self.next + 1 == self.size { 0 } else { self.next + 1 };
    }

    fn clear(&mut self) {
        // Bits of old calls may stay: none is read before it has been written again.
        self.next = 0;
        self.counts = Counts::default();
    }
}

/// The calls of the current bucket of time and of the nine before it.
#[derive(Clone, Debug)]
pub(super) struct TimeWindow {
    buckets: [Counts; BUCKETS],
    width: u64,
    /// Number of the current bucket, counted from time zero.
    current: u64,
    counts: Counts,
}

impl TimeWindow {
    fn new(length: u64) -> Self {
        Self {
            buckets: [Counts::default(); BUCKETS],
            width: length / BUCKETS as u64,
            current: 0,
            counts: Counts::default(),
        }
    }

    fn record(&mut self, marked: bool, now: u64) {
        self.slide(now / self.width);
        self.buckets[slot(self.current)].add(marked);
        self.counts.add(marked);
    }

    /// Moves on to `bucket`; a time that lies behind counts as the current one.
    fn slide(&mut self, bucket: u64) {
        let passed = bucket.saturating_sub(self.current).min(BUCKETS as u64);
        for bucket in 1..=passed {
            let expired = std::mem::take(&mut self.buckets[slot(self.current + bucket)]);
            self.counts.subtract(expired);
        }
        self.current = self.current.max(bucket);
    }

    fn clear(&mut self) {
        self.buckets = Default::default();
        self.counts = Counts::default();
    }
}

fn slot(bucket: u64) -> usize {
    (bucket % BUCKETS as u64) as usize
}
