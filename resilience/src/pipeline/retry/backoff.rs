//! How long to wait before the next attempt.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The waits of one call: exponential, with full jitter.
///
/// backon gives the exponential series. Its own jitter only lengthens a wait; "full jitter" (Brooker, "Exponential
/// Backoff And Jitter", AWS, 2015) draws it from zero to the exponential value, which spreads the retries of many callers
/// best.
#[derive(Debug)]
pub(super) struct Delays(ExponentialBackoff);

impl Delays {
    /// `retries` waits, the first up to `base`, each later one up to twice the one before and at most `cap`.
    pub(super) fn new(retries: u32, base: Duration, cap: Duration) -> Self {
        let retries = usize::try_from(retries).unwrap_or(usize::MAX);
        let series = ExponentialBuilder::new()
            // backon does not cut the first wait.
            .with_min_delay(base.min(cap))
            .with_max_delay(cap)
            .with_max_times(retries);
        Self(series.build())
    }

    /// The next wait, `random` (from 0 to 1) of the exponential one; `None` when all attempts are made.
    pub(super) fn next(&mut self, random: f64) -> Option<Duration> {
        let nanos = self.0.next()?.as_nanos() as f64 * random;
        Some(Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn waits_double_up_to_the_cap(
            retries in 0_u32..40,
            base in 0_u64..5_000,
            cap in 0_u64..20_000,
            random in 0.0..1.0_f64,
        ) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let mut longest = Delays::new(retries, base, cap);
            let mut drawn = Delays::new(retries, base, cap);
            let mut expected = base.min(cap);
            for _ in 0..retries {
                let full = longest.next(1.0).expect("as many as retries");
                prop_assert!(full <= cap && is_near(full, expected), "{:?}, not {:?}", full, expected);
                let wait = drawn.next(random).expect("as many as retries");
                prop_assert!(wait <= full && is_near(wait, expected.mul_f64(random)));
                expected = (expected * 2).min(cap);
            }
            prop_assert_eq!(longest.next(1.0), None);
        }
    }

    /// backon counts in single precision.
    fn is_near(one: Duration, other: Duration) -> bool {
        one.abs_diff(other) <= other / 100_000 + Duration::from_micros(1)
    }

    #[test]
    fn a_wait_of_any_length_is_a_wait() {
        let mut delays = Delays::new(70, Duration::MAX, Duration::MAX);
        for _ in 0..70 {
            assert!(delays.next(1.0).is_some());
        }
    }
}
