//! What is counted and logged about the guards. Nothing here can fail a request or make it wait: counts are atomics that
//! a task publishes, and a warning is written at most once a second for each guard.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{clock::Clock, question::Outage, store_breaker::Operation};

/// How a guard's verdict came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It let the request pass.
    Passed,
    /// It rejected the request.
    Rejected,
    /// It could not tell, and refused.
    Unavailable,
    /// It could not tell, and let the request pass.
    Open,
    /// The store could not tell, and this process counted.
    Local,
    /// The store could not tell, and the flag's default served.
    Default,
    /// The store could not tell, and the flag's last known value served.
    Stale,
    /// The store was not asked, since too many questions wait in this process: the request was refused.
    Shed,
    /// It only observes, and would have rejected the request.
    ObservedRejected,
}

impl Answer {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 9] = [
        Self::Passed,
        Self::Rejected,
        Self::Unavailable,
        Self::Open,
        Self::Local,
        Self::Default,
        Self::Stale,
        Self::Shed,
        Self::ObservedRejected,
    ];

    #[cfg(feature = "metrics")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Rejected => "rejected",
            Self::Unavailable => "unavailable",
            Self::Open => "fallback_open",
            Self::Local => "fallback_local",
            Self::Default => "fallback_default",
            Self::Stale => "fallback_stale",
            Self::Shed => "shed",
            Self::ObservedRejected => "observed_rejected",
        }
    }
}

/// Verdicts of one guard of one handler.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    #[cfg(feature = "metrics")]
    counts: [AtomicU64; Answer::ALL.len()],
}

impl Tally {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "counts are compiled out")
    )]
    pub(crate) fn count(&self, answer: Answer) {
        #[cfg(feature = "metrics")]
        self.counts[answer as usize].fetch_add(1, Ordering::Relaxed);
        #[cfg(not(feature = "metrics"))]
        let _ = answer;
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn counted(&self, answer: Answer) -> u64 {
        self.counts[answer as usize].load(Ordering::Relaxed)
    }
}

/// How often a handler held its thread past its deadline: code that blocks, which nobody can drop.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    #[cfg(feature = "metrics")]
    count: AtomicU64,
}

/// How late a handler may be dropped before it counts: timers and schedulers are late too.
const OVERRUN: Duration = Duration::from_millis(100);

impl Overruns {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "counts are compiled out")
    )]
    pub(crate) fn note(&self, budget: Duration, took: Duration) {
        if took.saturating_sub(budget) > OVERRUN {
            #[cfg(feature = "metrics")]
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn counted(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// What the store did, per operation.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    #[cfg(feature = "metrics")]
    operations: [Operations; Operation::ALL.len()],
}

#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
struct Operations {
    took: std::sync::Mutex<Vec<Duration>>,
    outages: [AtomicU64; Outage::KINDS.len()],
}

/// Samples kept between two publications; further ones are left out.
#[cfg(feature = "metrics")]
const SAMPLES_MAX: usize = 8_192;

impl Observer {
    /// Notes an answer, or why there is none, and how long the store took for it.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "notes are compiled out")
    )]
    pub(crate) fn note<T>(&self, operation: Operation, (answer, took): &(Result<T, Outage>, Option<Duration>)) {
        #[cfg(feature = "metrics")]
        {
            let noted = &self.operations[operation as usize];
            if let Some(took) = took {
                let mut samples = noted.took.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if samples.len() < SAMPLES_MAX {
                    samples.push(*took);
                }
            }
            if let Err(outage) = answer {
                noted.outages[outage.kind()].fetch_add(1, Ordering::Relaxed);
            }
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (operation, answer, took);
    }

    /// The samples since the last call.
    #[cfg(feature = "metrics")]
    pub(crate) fn drain_samples(&self, operation: Operation) -> Vec<Duration> {
        let samples = &self.operations[operation as usize].took;
        std::mem::take(&mut *samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// How often each kind of outage was met, in the order of [`Outage::KINDS`].
    #[cfg(feature = "metrics")]
    pub(crate) fn outages(&self, operation: Operation) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = &self.operations[operation as usize].outages;
        let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
        Outage::KINDS.into_iter().zip(counts)
    }
}

/// Warnings about one guard, at most one a second.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// Nanoseconds of the last one; 0 before the first.
    last: AtomicU64,
    unsaid: AtomicU64,
}

const COMPLAINT_EVERY: u64 = 1_000_000_000;

impl Complaints {
    /// Says that a guard had to do without the store. An open breaker has said so itself when it opened.
    pub(crate) fn about(&self, guard: &dyn Display, outage: &Outage) {
        if !matches!(outage, Outage::BreakerOpen) {
            self.say(guard, outage);
        }
    }

    /// Says that a guard could not decide.
    pub(crate) fn say(&self, guard: &dyn Display, reason: &dyn Display) {
        if let Some(unsaid) = self.due() {
            tracing::warn!(%guard, %reason, unsaid, "a guard fell back");
        }
    }

    /// Says that a flag has a value that cannot be read.
    pub(crate) fn unreadable(&self, flag: &str, reason: &dyn Display) {
        if let Some(unsaid) = self.due() {
            tracing::warn!(flag, %reason, unsaid, "a flag is unreadable: its last known value or its default serves");
        }
    }

    /// Says what a guard would have answered that only observes.
    pub(crate) fn would_have_rejected(&self, guard: &dyn Display, refusal: &dyn Display) {
        if let Some(unsaid) = self.due() {
            tracing::warn!(%guard, %refusal, unsaid, "would have rejected");
        }
    }

    /// How many were left unsaid since the last one, if it is time for another.
    fn due(&self) -> Option<u64> {
        let now = Clock::system().nanos();
        let last = self.last.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= COMPLAINT_EVERY;
        if due
            && self
                .last
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            Some(self.unsaid.swap(0, Ordering::Relaxed))
        } else {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}
