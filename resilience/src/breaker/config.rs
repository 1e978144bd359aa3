use std::time::Duration;

use super::window::BUCKETS;
use crate::clock::nanos;

/// The largest [`RateWindow::Calls`], in calls: the ring takes one bit for each.
pub const MAX_WINDOW_CALLS: u32 = 1 << 20;

/// The shortest [`RateWindow::Time`].
pub const MIN_WINDOW_TIME: Duration = Duration::from_millis(10);

/// When a breaker opens, for how long, and what closes it again.
///
/// The default opens after 5 failures in a row, for 5 seconds, and lets 1 probe decide.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::breaker::{BreakerConfig, RateWindow};
///
/// let config = BreakerConfig::default()
///     .with_failure_rate(0.5, 20, RateWindow::Time(Duration::from_secs(10)))
///     .with_open_for(Duration::from_secs(2))
///     .with_max_open_for(Duration::from_secs(30))
///     .with_probes(3);
/// assert!(config.validate().is_ok());
///
/// let error = config.with_probes(0).validate().unwrap_err();
/// assert_eq!(error.option(), "probes");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerConfig {
    pub(super) failures_in_a_row: Option<u32>,
    pub(super) failure_rate: Option<FailureRate>,
    pub(super) slow_calls: Option<SlowCalls>,
    pub(super) open_for: Duration,
    pub(super) max_open_for: Option<Duration>,
    pub(super) jitter: f64,
    pub(super) probes: u32,
    pub(super) probe_lease: Duration,
}

/// The failure-rate rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FailureRate {
    pub(super) rate: f64,
    pub(super) min_calls: u32,
    pub(super) window: RateWindow,
}

/// The slow-call rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlowCalls {
    pub(super) threshold: Duration,
    pub(super) rate: f64,
    pub(super) min_calls: u32,
    pub(super) window: RateWindow,
}

/// Which calls a rate is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateWindow {
    /// The last so many calls, exactly; from 1 to [`MAX_WINDOW_CALLS`].
    Calls(u32),
    /// The calls of the last so much time; at least [`MIN_WINDOW_TIME`].
    ///
    /// Kept in ten buckets: a call counts for at least nine tenths of the window and at most for all of it.
    Time(Duration),
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures_in_a_row: Some(5),
            failure_rate: None,
            slow_calls: None,
            open_for: Duration::from_secs(5),
            max_open_for: None,
            jitter: 0.0,
            probes: 1,
            probe_lease: Duration::from_secs(30),
        }
    }
}

impl BreakerConfig {
    /// Opens after this many failures with no success between them. Default: 5.
    #[must_use]
    pub const fn with_failures_in_a_row(mut self, failures: u32) -> Self {
        self.failures_in_a_row = Some(failures);
        self
    }

    /// Leaves it to the failure rate alone, however many failures come in a row.
    #[must_use]
    pub const fn without_failures_in_a_row(mut self) -> Self {
        self.failures_in_a_row = None;
        self
    }

    /// Opens also when at least this share of the calls in `window` has failed. Default: no such rule.
    ///
    /// `rate` is in (0, 1]. Below `min_calls` calls in the window the rate says nothing. The rate is judged when a call
    /// fails: a success never opens the circuit.
    #[must_use]
    pub const fn with_failure_rate(mut self, rate: f64, min_calls: u32, window: RateWindow) -> Self {
        self.failure_rate = Some(FailureRate {
            rate,
            min_calls,
            window,
        });
        self
    }

    /// Opens also when at least this share of the calls in `window` took `threshold` or longer. Default: no such rule.
    ///
    /// As resilience4j has it: every answered call counts, and a slow one is slow whether it succeeded or failed. A slow
    /// call that succeeded is still no failure to the other rules. `rate` is in (0, 1]; below `min_calls` calls in the
    /// window it says nothing, and it is judged when a call was slow: a fast one never opens the circuit. A slow probe
    /// reopens it.
    ///
    /// A call is timed from its permit to its record. One that is reported with no permit
    /// ([`record_success`](super::CircuitBreaker::record_success)) counts as fast, and one that is dropped not at all.
    /// With this rule each call reads the clock twice, about 60 ns; without it a closed circuit reads none.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use resilience::breaker::{BreakerConfig, RateWindow};
    ///
    /// let config = BreakerConfig::default().with_slow_calls(
    ///     Duration::from_millis(800),
    ///     0.5,
    ///     20,
    ///     RateWindow::Time(Duration::from_secs(10)),
    /// );
    /// assert!(config.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn with_slow_calls(mut self, threshold: Duration, rate: f64, min_calls: u32, window: RateWindow) -> Self {
        self.slow_calls = Some(SlowCalls {
            threshold,
            rate,
            min_calls,
            window,
        });
        self
    }

    /// How long the circuit stays open before the first probe. Default: 5 seconds.
    #[must_use]
    pub const fn with_open_for(mut self, open_for: Duration) -> Self {
        self.open_for = open_for;
        self
    }

    /// Doubles the open time with each failed probe, up to `cap`, and starts over once the circuit has closed.
    /// Default: no doubling.
    #[must_use]
    pub const fn with_max_open_for(mut self, cap: Duration) -> Self {
        self.max_open_for = Some(cap);
        self
    }

    /// Shortens the open time after each failed probe by a random share of up to `jitter`, so that many instances do
    /// not probe in step. In [0, 1). Default: 0.
    ///
    /// With `0.5` this is the "equal jitter" of Brooker, "Exponential Backoff And Jitter" (AWS, 2015).
    #[must_use]
    pub const fn with_jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many probes are let in while half-open, and must all succeed to close the circuit. Default: 1.
    #[must_use]
    pub const fn with_probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// How long a probe may take to answer. Then its slot goes to another call, and its answer changes nothing.
    /// Default: 30 seconds.
    ///
    /// Set it above the longest time that a healthy call takes: a circuit whose probes all come late stays half-open.
    #[must_use]
    pub const fn with_probe_lease(mut self, lease: Duration) -> Self {
        self.probe_lease = lease;
        self
    }

    /// Checks every option.
    ///
    /// # Errors
    ///
    /// Names the first option whose value makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(
            self.failures_in_a_row.is_some() || self.failure_rate.is_some() || self.slow_calls.is_some(),
            "failures_in_a_row",
            "is off and there is neither failure_rate nor slow_calls: the circuit could never open",
        )?;
        require(
            self.failures_in_a_row != Some(0),
            "failures_in_a_row",
            "must be at least 1",
        )?;
        if let Some(rule) = &self.failure_rate {
            validate_rate("failure_rate", rule.rate, rule.min_calls, rule.window)?;
        }
        if let Some(rule) = &self.slow_calls {
            require(
                !rule.threshold.is_zero(),
                "slow_calls",
                "must have a threshold longer than zero",
            )?;
            validate_rate("slow_calls", rule.rate, rule.min_calls, rule.window)?;
        }
        require(!self.open_for.is_zero(), "open_for", "must be longer than zero")?;
        require(
            self.max_open_for.is_none_or(|cap| cap >= self.open_for),
            "max_open_for",
            "must not be shorter than open_for",
        )?;
        require(
            (0.0..1.0).contains(&self.jitter),
            "jitter",
            "must be at least 0 and less than 1",
        )?;
        require(self.probes > 0, "probes", "must be at least 1")?;
        require(!self.probe_lease.is_zero(), "probe_lease", "must be longer than zero")
    }

    pub(crate) const fn probe_lease(&self) -> Duration {
        self.probe_lease
    }

    pub(crate) const fn open_for(&self) -> Duration {
        self.open_for
    }

    /// How long to stay open, in nanoseconds, after `failed_probes` probes have failed since the circuit was last closed.
    ///
    /// `random` is in [0, 1).
    pub(super) fn open_time(&self, failed_probes: u32, random: f64) -> u64 {
        if failed_probes == 0 {
            return nanos(self.open_for);
        }
        let factor = 1u64.checked_shl(failed_probes).unwrap_or(u64::MAX);
        let full = match self.max_open_for {
            None => nanos(self.open_for),
            Some(cap) => nanos(self.open_for).saturating_mul(factor).min(nanos(cap)),
        };
        let cut = (full as f64 * self.jitter * random) as u64;
        // Jitter is below 1, but the arithmetic rounds.
        full.saturating_sub(cut).max(1)
    }
}

fn validate_rate(option: &'static str, rate: f64, min_calls: u32, window: RateWindow) -> Result<(), ConfigError> {
    require(
        rate > 0.0 && rate <= 1.0,
        option,
        "must be a rate above 0 and at most 1",
    )?;
    require(min_calls > 0, "min_calls", "must be at least 1")?;
    match window {
        RateWindow::Calls(size) => {
            require(
                (1..=MAX_WINDOW_CALLS).contains(&size),
                "window",
                "must hold from 1 to 1048576 calls",
            )?;
            require(
                min_calls <= size,
                "min_calls",
                "must not be above the calls in the window, or the rule could never apply",
            )
        }
        RateWindow::Time(length) => require(length >= MIN_WINDOW_TIME, "window", "must be at least 10 ms"),
    }
}

// A bucket narrower than a nanosecond would have no width.
const _: () = assert!(MIN_WINDOW_TIME.as_nanos() >= BUCKETS as u128);

/// An option of a [`BreakerConfig`] that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("breaker option `{option}` {problem}")]
pub struct ConfigError {
    option: &'static str,
    problem: &'static str,
}

impl ConfigError {
    /// The option's name.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }
}

fn require(holds: bool, option: &'static str, problem: &'static str) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError { option, problem })
    }
}
