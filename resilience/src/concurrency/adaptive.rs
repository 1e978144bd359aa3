use std::time::Duration;

use super::config::{ConfigError, require};

/// A limit that follows the latency that is measured.
///
/// The configured limit is the ceiling. Below it the limit grows while all places are in use and the service is as fast
/// as when it was little used, and shrinks as soon as it is not. The defaults suit a handler whose requests all do
/// about the same; a limit over requests of very different lengths follows the most frequent kind.
///
/// ```
/// use resilience::concurrency::{Adaptive, ConcurrencyConfig};
///
/// let config = ConcurrencyConfig::new(200).with_adaptive(Adaptive::default().with_floor(4));
/// assert!(config.validate().is_ok());
/// ```
///
/// # Algorithm
///
/// The gradient of Netflix's [concurrency-limits] (`Gradient2Limit`), with these differences:
///
/// - Latencies are compared by the median of a window. A window holds only requests that started under the present
///   limit, so each decision waits for the effect of the one before, and one slow answer decides nothing.
/// - The baseline is no running average, which rises for ever under constant overload. From time to time the limit is
///   halved for one window, and again while that makes the service clearly faster (as BBR does in `ProbeRTT`, Cardwell et al.,
///   2016); what is measured there is the baseline, be it higher or lower than before.
/// - Failures shrink the limit by themselves, by a factor and at most once per generation of requests (AIMD, Chiu and
///   Jain, 1989), so that an overload shows even when nothing is answered in time.
///
/// A request that is given up (its client has gone, its budget was spent) counts with the time that it had, if that was
/// longer than a healthy latency already. Without that an overload whose clients all leave would show nowhere.
///
/// In balance the median stands at 1.1 to 1.4 times the baseline. What was measured and how is on the page about
/// concurrency in the book.
///
/// The crate `congestion-limiter` was looked at and not taken: its limits are updated by an async fn, which a slot's
/// `Drop` cannot await, its gradient keeps a running average as baseline, and it comes with a semaphore of its own.
///
/// [concurrency-limits]: https://github.com/Netflix/concurrency-limits
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    pub(super) floor: u32,
    pub(super) initial: u32,
    pub(super) tolerance: f64,
    pub(super) probe_every: Duration,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            floor: 1,
            initial: 8,
            tolerance: 1.15,
            probe_every: Duration::from_secs(10),
        }
    }
}

impl Adaptive {
    /// The limit never falls below this. Default: 1; at most the configured limit.
    #[must_use]
    pub const fn with_floor(mut self, floor: u32) -> Self {
        self.floor = floor;
        self
    }

    /// Where the limit starts; it doubles from there until latency rises. Default: 8.
    ///
    /// At least 1. Outside of the floor and the configured limit, the nearer of the two serves. Far above what the service
    /// can do is a risk: with nobody served from the first moment on there is nothing to measure, and the limit stays.
    #[must_use]
    pub const fn with_initial(mut self, initial: u32) -> Self {
        self.initial = initial;
        self
    }

    /// How many times the baseline's latency is still taken for a healthy one. Default: 1.15; from 1 to 10.
    ///
    /// Higher keeps a service busier whose latency varies by itself, and lets more of a queue form inside it.
    #[must_use]
    pub const fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How often the limit is halved for a window to measure the baseline anew. Default: 10 seconds.
    ///
    /// From 100 ms to an hour. It also takes at least 50 windows in between, so that a slow service is not halved all the
    /// time. While the service is little used, nobody notices.
    #[must_use]
    pub const fn with_probe_every(mut self, interval: Duration) -> Self {
        self.probe_every = interval;
        self
    }

    pub(super) fn validate(&self, ceiling: u32) -> Result<(), ConfigError> {
        require(
            (1..=ceiling).contains(&self.floor),
            "floor",
            "must be at least 1 and not above the limit",
        )?;
        require(self.initial > 0, "initial", "must be at least 1")?;
        require(
            (1.0..=10.0).contains(&self.tolerance),
            "tolerance",
            "must be from 1 to 10",
        )?;
        require(
            (Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&self.probe_every),
            "probe_every",
            "must be from 100 ms to an hour",
        )
    }
}
