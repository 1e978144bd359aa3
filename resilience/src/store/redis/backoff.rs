//! When to try to connect again.

use std::time::Duration;

use tokio::time::Instant;

/// The wait after the first failure, before jitter.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Doubles the wait with each failed attempt, up to a cap, and takes up to half of it off at random.
#[derive(Debug)]
pub(super) struct Backoff {
    cap: Duration,
    /// The wait after the last failure, before jitter; zero while all is well.
    wait: Duration,
    next: Option<Instant>,
}

impl Backoff {
    pub(super) const fn new(cap: Duration) -> Self {
        Self {
            cap,
            wait: Duration::ZERO,
            next: None,
        }
    }

    /// Whether an attempt has to wait.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| now < next)
    }

    /// Notes a failed attempt; `jitter` is random, from 0 to 1.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) {
        // Connections of one pool fail together: that is one failure.
        if self.holds(now) {
            return;
        }
        self.wait = (self.wait * 2).max(FIRST_WAIT).min(self.cap);
        self.next = Some(now + self.wait.mul_f64(1.0 - jitter / 2.0));
    }

    /// Lets the next attempt through, which goes on where the last one has stopped if it fails.
    pub(super) fn skip(&mut self) {
        self.next = None;
    }

    /// Notes a success.
    pub(super) fn succeeded(&mut self) {
        *self = Self::new(self.cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(5);

    /// How long `backoff` holds after a failure at `now`.
    fn failed(backoff: &mut Backoff, now: &mut Instant, jitter: f64) -> Duration {
        backoff.failed(*now, jitter);
        let failed = *now;
        while backoff.holds(*now) {
            *now += Duration::from_millis(1);
        }
        *now - failed
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let mut backoff = Backoff::new(CAP);
        let mut now = Instant::now();
        assert!(!backoff.holds(now));
        let waits: Vec<u128> = (0..8)
            .map(|_| failed(&mut backoff, &mut now, 0.0).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn jitter_takes_off_up_to_half() {
        let mut now = Instant::now();
        assert_eq!(failed(&mut Backoff::new(CAP), &mut now, 1.0), FIRST_WAIT / 2);
        assert_eq!(
            failed(&mut Backoff::new(Duration::from_millis(40)), &mut now, 0.5),
            Duration::from_millis(30)
        );
    }

    #[test]
    fn failures_at_the_same_time_are_one() {
        let mut backoff = Backoff::new(CAP);
        let mut now = Instant::now();
        backoff.failed(now, 0.0);
        assert_eq!(failed(&mut backoff, &mut now, 0.0), FIRST_WAIT);
    }

    #[test]
    fn a_skipped_wait_does_not_start_over_and_a_success_does() {
        let mut backoff = Backoff::new(CAP);
        let mut now = Instant::now();
        failed(&mut backoff, &mut now, 0.0);
        backoff.failed(now, 0.0);
        backoff.skip();
        assert!(!backoff.holds(now));
        assert_eq!(failed(&mut backoff, &mut now, 0.0), 4 * FIRST_WAIT);
        backoff.succeeded();
        assert_eq!(failed(&mut backoff, &mut now, 0.0), FIRST_WAIT);
    }
}
