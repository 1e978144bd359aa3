//! Settings of a lockout.

use std::time::Duration;

use crate::{policy::OnOutage, store::lockout::tally::MOST_ATTEMPTS};

/// Settings of a [`Lockout`](super::Lockout).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until `Resilience::lockout` is given them"]
pub struct LockoutConfig {
    pub(super) attempts: u32,
    pub(super) durations: Vec<Duration>,
    pub(super) on_outage: OnOutage,
    pub(super) deadline: Option<Duration>,
}

impl LockoutConfig {
    /// Locks for `duration` once `attempts` of them have failed. `duration` is also how long each failure counts. Fails
    /// closed.
    pub fn new(attempts: u32, duration: Duration) -> Self {
        Self {
            attempts,
            durations: vec![duration],
            on_outage: OnOutage::FailClosed,
            deadline: None,
        }
    }

    /// Locks for the first of these, the next time for the second, and so on; the last one repeats, and is how long
    /// failures count and locks are remembered.
    pub fn with_durations(mut self, durations: impl IntoIterator<Item = Duration>) -> Self {
        self.durations = durations.into_iter().collect();
        self
    }

    /// What it does while the store cannot tell.
    pub fn with_on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// Bounds each answer of the store; the default is the builder's `lockout_deadline` (100 ms).
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    pub(super) fn validate(&self, name: &str) -> Result<(), InvalidLockout> {
        const BOUNDS: std::ops::RangeInclusive<Duration> =
            Duration::from_millis(1)..=Duration::from_secs(366 * 24 * 60 * 60);
        const DEADLINES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60 * 60);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            Err(InvalidLockout("name must be 1 to 64 characters of visible ASCII"))
        } else if !(1..=MOST_ATTEMPTS).contains(&self.attempts) {
            Err(InvalidLockout("attempts must be from 1 to 1,000"))
        } else if self.durations.is_empty() || !self.durations.iter().all(|duration| BOUNDS.contains(duration)) {
            Err(InvalidLockout(
                "durations must be from 1 ms to 366 days, and at least one",
            ))
        } else if !self.durations.is_sorted_by(|shorter, longer| shorter < longer) {
            Err(InvalidLockout("durations must rise"))
        } else if self.deadline.is_some_and(|deadline| !DEADLINES.contains(&deadline)) {
            Err(InvalidLockout("deadline must be from 1 ms to 1 h"))
        } else {
            Ok(())
        }
    }
}

/// Settings that make no lockout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lockout's {0}")]
pub struct InvalidLockout(&'static str);
