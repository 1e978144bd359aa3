//! How many retries there may be, over all calls.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::clock::Clock;

/// Bounds the retries of many calls together, so that they cannot amplify an outage. Clones share one budget.
///
/// A token bucket, as in Finagle's `RetryBudget` and gRPC's retry throttling (gRFC A6): each call puts in a share of a
/// token, time puts in a few more, and each retry takes a whole one out. While the dependency is down and every call
/// wants to be retried, `n` calls in `d` seconds make at most
///
/// ```text
/// saved + ratio * n + per_second * d
/// ```
///
/// retries, however many each call would be allowed.
///
/// The default is 10 % of the calls, 1 a second on top, and 10 saved at most; it begins with those 10.
///
/// ```
/// use resilience::pipeline::RetryBudget;
///
/// let budget = RetryBudget::new(0.2, 0);
/// // Two clients of one dependency, one budget.
/// let shared = budget.clone();
/// assert_eq!(shared.available(), 10);
/// ```
#[derive(Clone)]
pub struct RetryBudget {
    shared: Arc<Shared>,
}

struct Shared {
    /// In millionths of a token.
    tokens: AtomicU64,
    /// What a call puts in.
    share: u64,
    per_second: u32,
    /// The most that is kept.
    saved: u64,
    /// Up to when time has put in its tokens, in nanoseconds of the clock.
    paid_until: Mutex<u64>,
    clock: Clock,
}

/// The unit of the arithmetic: nothing smaller than this share of a call counts.
const TOKEN: u64 = 1_000_000;

/// Tokens kept from good times, unless told otherwise.
const SAVED: u32 = 10;

impl RetryBudget {
    /// Retries for this share of the calls, from 0 to 1 and taken as the nearest of them if it is not, and this many more
    /// in each second.
    #[must_use]
    pub fn new(ratio: f64, per_second: u32) -> Self {
        // Casts to the nearest value that there is; from NaN to 0.
        let share = (ratio.clamp(0.0, 1.0) * TOKEN as f64).round() as u64;
        Self::assemble(share, per_second, u64::from(SAVED) * TOKEN, Clock::system())
    }

    /// A new budget that keeps up to this many tokens for bad times, and begins with them. Default: 10.
    #[must_use]
    pub fn with_saved(self, retries: u32) -> Self {
        let Shared {
            share,
            per_second,
            ref clock,
            ..
        } = *self.shared;
        Self::assemble(share, per_second, u64::from(retries) * TOKEN, clock.clone())
    }

    /// A new, full budget with the same settings that lives by `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        let Shared {
            share,
            per_second,
            saved,
            ..
        } = *self.shared;
        Self::assemble(share, per_second, saved, clock)
    }

    /// Retries that could be made now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.shared.pay();
        let tokens = self.shared.tokens.load(Ordering::Relaxed) / TOKEN;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Counts a call. Retries of it are not calls.
    pub fn deposit(&self) {
        self.shared.put(self.shared.share);
    }

    /// Takes a token for a retry; `false` if there is none.
    #[must_use]
    pub fn try_withdraw(&self) -> bool {
        self.shared.pay();
        let take = |tokens: u64| tokens.checked_sub(TOKEN);
        self.shared
            .tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    fn assemble(share: u64, per_second: u32, saved: u64, clock: Clock) -> Self {
        Self {
            shared: Arc::new(Shared {
                tokens: AtomicU64::new(saved),
                share,
                per_second,
                saved,
                paid_until: Mutex::new(clock.nanos()),
                clock,
            }),
        }
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(0.1, 1)
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget")
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn put(&self, tokens: u64) {
        // A full bucket, as in good times, is read and not written.
        let add = |now: u64| (now < self.saved).then(|| now.saturating_add(tokens).min(self.saved));
        // An error only says that it is full.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Puts in what time has earned: only retries need it, so that calls do not read the clock.
    fn pay(&self) {
        if self.per_second == 0 {
            return;
        }
        let now = self.clock.nanos();
        let earned = {
            let mut paid_until = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = u128::from(now.saturating_sub(*paid_until));
            let earned = passed * u128::from(self.per_second) * u128::from(TOKEN) / SECOND;
            // Up to the last whole unit: frequent questions must not round time away.
            let paid = earned * SECOND / (u128::from(self.per_second) * u128::from(TOKEN));
            *paid_until = paid_until.saturating_add(u64::try_from(paid).unwrap_or(u64::MAX));
            u64::try_from(earned).unwrap_or(u64::MAX)
        };
        self.put(earned);
    }
}

/// In nanoseconds.
const SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Call,
        Retry,
        Wait(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Call),
            6 => Just(Step::Retry),
            1 => (0..3_000_000_000_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// The bound that the docs state, over every span of the run.
        #[test]
        fn retries_stay_within_the_bound_in_any_span(
            ratio in 0.0..1.0_f64,
            per_second in 0..20_u32,
            saved in 0..30_u32,
            steps in prop::collection::vec(any_step(), 1..300),
        ) {
            let clock = Clock::manual();
            let budget = RetryBudget::new(ratio, per_second).with_saved(saved).with_clock(clock.clone());
            let mut made = Vec::new();
            let (mut calls, mut waited, mut retries) = (0_u64, 0_u64, 0_u64);
            for step in steps {
                match step {
                    Step::Call => {
                        budget.deposit();
                        calls += 1;
                    }
                    Step::Retry => retries += u64::from(budget.try_withdraw()),
                    Step::Wait(by) => {
                        clock.advance(Duration::from_nanos(by));
                        waited += by;
                    }
                }
                made.push((calls, waited, retries));
            }
            for (nth, first) in made.iter().enumerate() {
                for last in &made[nth..] {
                    let (calls, waited) = ((last.0 - first.0) as f64, (last.1 - first.1) as f64 / 1e9);
                    let most = f64::from(saved) + ratio * calls + f64::from(per_second) * waited;
                    prop_assert!((last.2 - first.2) as f64 <= most + 1e-3);
                }
            }
        }

        #[test]
        fn asking_often_loses_no_time(per_second in 1..50_u32, pieces in prop::collection::vec(1..2_000_000_u64, 1..200)) {
            let clock = Clock::manual();
            let budget = RetryBudget::new(0.0, per_second).with_saved(1_000).with_clock(clock.clone());
            while budget.try_withdraw() {}
            for piece in &pieces {
                clock.advance(Duration::from_nanos(*piece));
                let _ = budget.available();
            }
            let earned = u128::from(pieces.iter().sum::<u64>()) * u128::from(per_second) / SECOND;
            prop_assert_eq!(u128::from(budget.available()), earned);
        }
    }

    #[test]
    fn it_begins_full_and_is_never_fuller() {
        let clock = Clock::manual();
        let budget = RetryBudget::default().with_clock(clock.clone());
        assert_eq!(budget.available(), 10);
        for _ in 0..1_000 {
            budget.deposit();
        }
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(budget.available(), 10);
        assert_eq!((0..100).filter(|_| budget.clone().try_withdraw()).count(), 10);
    }

    #[test]
    fn a_ratio_that_is_none_is_the_nearest_one() {
        for (ratio, per_ten) in [(-1.0, 0), (7.0, 10), (f64::NAN, 0), (0.3, 3)] {
            let budget = RetryBudget::new(ratio, 0).with_saved(100);
            while budget.try_withdraw() {}
            for _ in 0..10 {
                budget.deposit();
            }
            assert_eq!(budget.available(), per_ten, "{ratio}");
        }
    }

    #[test]
    fn threads_share_what_there_is() {
        let budget = RetryBudget::new(0.0, 0).with_saved(50);
        let made: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..100).filter(|_| budget.try_withdraw()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(made, 50);
    }
}
