//! The arithmetic of counting windows, in whole milliseconds and without rounding.
//!
//! `scripts/take.lua` mirrors [`Rule::count`] and [`Rule::room`]; all other answers are computed here for both stores.
//!
//! A sliding window of a limit above [`log::LONGEST`](super::log::LONGEST) is approximated by two counters, as Cloudflare
//! describes in "How we built rate limiting capable of scaling to millions of domains": windows are aligned to the clock,
//! and the previous one's count is weighted by the share of it that still overlaps the last `window` milliseconds. It
//! admits at most `limit` in any aligned window, and at most `limit * (1 + d / window)` in any span of `d <= window`
//! milliseconds. After one window without an admitted request the counts start afresh, so no wait is longer than that.

use std::time::Duration;

use super::Taken;

/// What is stored per client and quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The aligned window that `current` counts: milliseconds of the clock divided by the window's length.
    pub(crate) index: u64,
    pub(crate) previous: u32,
    pub(crate) current: u32,
    /// When the last request was admitted, in milliseconds of the clock; 0 for a fixed window.
    pub(crate) last: u64,
}

/// The counts as they are at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) previous: u32,
    pub(crate) current: u32,
    /// Milliseconds since the current window began; less than its length.
    pub(crate) elapsed: u64,
    /// Milliseconds since the last request was admitted, up to a window; 0 for a fixed window.
    pub(crate) idle: u64,
}

/// A quota's limit and a request's cost in the units of the arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// At least 1.
    pub(crate) limit: u64,
    /// In milliseconds, at least 1.
    pub(crate) window: u64,
    pub(crate) sliding: bool,
    /// From 1 to the limit.
    pub(crate) cost: u64,
}

impl Rule {
    /// What `stored` amounts to at `now`, and the index of the window that is then current.
    pub(crate) fn count(&self, stored: Stored, now: u64) -> (u64, Count) {
        let mut index = now / self.window;
        let mut elapsed = now % self.window;
        if stored.index == index + 1 {
            // The clock has stepped back over a boundary: stay in the window that has begun already.
            index = stored.index;
            elapsed = 0;
        }
        // A clock that has stepped back shows a last request in the future: it counts as now.
        let idle = if self.sliding {
            now.saturating_sub(stored.last).min(self.window)
        } else {
            0
        };
        let (previous, current) = if idle == self.window {
            (0, 0)
        } else if stored.index == index {
            (stored.previous, stored.current)
        } else if stored.index + 1 == index {
            (stored.current, 0)
        } else {
            (0, 0)
        };
        let previous = if self.sliding { previous } else { 0 };
        let count = Count {
            previous,
            current,
            elapsed,
            idle,
        };
        (index, count)
    }

    /// What to store of these counts at `now`.
    pub(crate) const fn stored(&self, index: u64, count: &Count, now: u64) -> Stored {
        Stored {
            index,
            previous: count.previous,
            current: count.current,
            last: if self.sliding { now - count.idle } else { 0 },
        }
    }

    /// How much would still pass: the largest `n` with `current + n + previous * overlap <= limit`.
    pub(crate) fn room(&self, count: &Count) -> u32 {
        u32::try_from(u128::from(self.limit).saturating_sub(self.used(count))).unwrap_or(u32::MAX)
    }

    /// The count of the last `window` milliseconds, rounded up.
    pub(crate) fn used(&self, count: &Count) -> u128 {
        let overlapping = product(u64::from(count.previous), self.window - count.elapsed).div_ceil(self.window.into());
        u128::from(count.current) + overlapping
    }

    /// Whether there is room for the request.
    pub(crate) fn fits(&self, count: &Count) -> bool {
        u64::from(self.room(count)) >= self.cost
    }

    /// Counts the request.
    pub(crate) fn charge(&self, count: &mut Count) {
        let current = u64::from(count.current) + self.cost;
        count.current = u32::try_from(current).unwrap_or(u32::MAX);
        count.idle = 0;
    }

    /// Milliseconds for which the counts are of use: when they run out, an empty entry says the same.
    pub(crate) const fn lifetime(&self, count: &Count) -> u64 {
        if self.sliding {
            self.window - count.idle
        } else {
            self.window - count.elapsed
        }
    }

    /// The answer for a quota that had room (`allowed`) or had none, with the counts after the decision.
    pub(crate) fn taken(&self, allowed: bool, after: &Count) -> Taken {
        let fits = self.fits(after);
        let wait = match (allowed, fits) {
            (_, false) => self.wait(after),
            (true, true) => 0,
            // Only a script whose arithmetic has lost a bit says so: see `take.lua`.
            (false, true) => 1,
        };
        Taken {
            allowed,
            remaining: remaining(allowed, self.room(after), self.cost),
            retry_after: Duration::from_millis(wait),
            reset: Duration::from_millis(wait.max(self.window - after.elapsed)),
        }
    }

    /// Milliseconds until there is room for the request, if nothing else is admitted meanwhile. Asked only when there is
    /// none.
    fn wait(&self, count: &Count) -> u64 {
        let rest = self.window - count.elapsed;
        if !self.sliding {
            return rest;
        }
        self.weighed(count, rest)
            .min(self.window.saturating_sub(count.idle))
            .max(1)
    }

    /// Milliseconds until the weight of the previous window leaves room.
    fn weighed(&self, count: &Count, rest: u64) -> u64 {
        // Still in this window: the previous one's weight falls until the request fits beside the current count.
        if let Some(room) = self.limit.checked_sub(u64::from(count.current) + self.cost) {
            return rest.saturating_sub(self.overlap_at_most(room, count.previous));
        }
        // In the next one: this window's count becomes the previous one, and its weight falls.
        rest + self.window - self.overlap_at_most(self.limit - self.cost, count.current)
    }

    /// The longest overlap, in milliseconds, at which `previous` requests weigh at most `room`.
    fn overlap_at_most(&self, room: u64, previous: u32) -> u64 {
        let longest = product(room, self.window) / u128::from(previous.max(1));
        u64::try_from(longest).unwrap_or(u64::MAX).min(self.window)
    }
}

/// What to say of the room: never so much that a request of this cost would pass, if it has just been refused.
pub(crate) fn remaining(allowed: bool, room: u32, cost: u64) -> u32 {
    if allowed {
        return room;
    }
    room.min(u32::try_from(cost - 1).unwrap_or(u32::MAX))
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts by looking at every request that was ever admitted.
    struct Model {
        rule: Rule,
        admitted: Vec<u64>,
    }

    impl Model {
        fn in_window(&self, index: u64) -> u128 {
            let window = self.rule.window;
            self.admitted.iter().filter(|at| **at / window == index).count() as u128
        }

        fn take(&mut self, now: u64) -> bool {
            let (window, cost) = (u128::from(self.rule.window), u128::from(self.rule.cost));
            let index = now / self.rule.window;
            let overlap = window - u128::from(now % self.rule.window);
            let previous = match index.checked_sub(1) {
                Some(index) if self.rule.sliding => self.in_window(index),
                _ => 0,
            };
            let idle = self.admitted.last().is_none_or(|last| now - last >= self.rule.window);
            if idle && self.rule.sliding {
                self.admitted.clear();
            }
            let previous = if self.admitted.is_empty() { 0 } else { previous };
            let passes =
                (self.in_window(index) + cost) * window + previous * overlap <= u128::from(self.rule.limit) * window;
            if passes {
                self.admitted.extend((0..cost).map(|_| now));
            }
            passes
        }
    }

    /// One quota in one bucket; a copy shows what would happen.
    #[derive(Clone, Copy)]
    struct Bucket {
        rule: Rule,
        stored: Stored,
    }

    impl Bucket {
        fn new(rule: Rule) -> Self {
            let stored = Stored::default();
            Self { rule, stored }
        }

        fn take(&mut self, now: u64) -> Taken {
            let (index, mut count) = self.rule.count(self.stored, now);
            let allowed = self.rule.fits(&count);
            if allowed {
                self.rule.charge(&mut count);
                self.stored = self.rule.stored(index, &count, now);
            }
            self.rule.taken(allowed, &count)
        }
    }

    fn rule(limit: u64, window: u64, sliding: bool) -> Rule {
        Rule {
            limit,
            window,
            sliding,
            cost: 1,
        }
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let limit_and_cost = (1..20_u64).prop_flat_map(|limit| (Just(limit), prop_oneof![Just(1), 1..=limit]));
        (limit_and_cost, 1..500_u64, any::<bool>()).prop_map(|((limit, cost), window, sliding)| Rule {
            cost,
            ..rule(limit, window, sliding)
        })
    }

    fn gaps() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![4 => 0..3_u64, 3 => 0..40_u64, 1 => 0..900_u64], 1..200)
    }

    proptest! {
        #[test]
        fn decides_as_the_model_does(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut model = Model { rule, admitted: Vec::new() };
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                prop_assert_eq!(bucket.take(now).allowed, model.take(now));
            }
        }

        #[test]
        fn keeps_its_bounds(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            let mut admitted = Vec::new();
            for gap in gaps {
                now += gap;
                if bucket.take(now).allowed {
                    admitted.extend((0..rule.cost).map(|_| now));
                }
            }
            for (nth, first) in admitted.iter().enumerate() {
                let aligned = admitted.iter().filter(|at| **at / rule.window == first / rule.window).count() as u64;
                prop_assert!(aligned <= rule.limit);
                if !rule.sliding {
                    let within = admitted[nth..].iter().filter(|at| **at - first < rule.window).count() as u64;
                    prop_assert!(within <= 2 * rule.limit);
                    continue;
                }
                for (more, last) in admitted[nth..].iter().enumerate() {
                    let span = last - first;
                    if span <= rule.window {
                        let count = more as u64 + 1;
                        prop_assert!(count * rule.window <= rule.limit * (rule.window + span));
                    }
                }
            }
        }

        #[test]
        fn a_retry_passes_after_its_wait_and_no_sooner(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                let taken = bucket.take(now);
                let wait = u64::try_from(taken.retry_after.as_millis()).unwrap();
                prop_assert!(wait <= rule.window);
                prop_assert_eq!(wait > 0, !taken.allowed || u64::from(taken.remaining) < rule.cost);
                prop_assert!(taken.reset >= taken.retry_after && taken.reset > Duration::ZERO);
                if wait > 0 {
                    let (mut early, mut due) = (bucket, bucket);
                    prop_assert!(!early.take(now + wait - 1).allowed);
                    prop_assert!(due.take(now + wait).allowed);
                }
            }
        }

        #[test]
        fn remaining_is_how_much_more_passes_at_once(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                let remaining = bucket.take(now).remaining;
                let mut burst = Bucket { rule: Rule { cost: 1, ..rule }, ..bucket };
                let passed = (0..=rule.limit).take_while(|_| burst.take(now).allowed).count();
                prop_assert_eq!(remaining as usize, passed);
            }
        }

        #[test]
        fn counts_are_empty_once_their_lifetime_is_over(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                bucket.take(now);
            }
            let (_, count) = rule.count(bucket.stored, now);
            let (_, later) = rule.count(bucket.stored, now + rule.lifetime(&count));
            prop_assert_eq!((later.previous, later.current), (0, 0));
        }
    }

    /// 366 days.
    const LONGEST_WINDOW: u64 = 366 * 24 * 60 * 60 * 1000;

    #[test]
    fn the_largest_quota_overflows_nothing() {
        let rule = rule(u32::MAX.into(), LONGEST_WINDOW, true);
        let full = Count {
            previous: u32::MAX,
            current: u32::MAX,
            elapsed: 0,
            idle: 0,
        };
        assert_eq!(rule.room(&full), 0);
        let wait = rule.taken(false, &full).retry_after;
        assert_eq!(wait, Duration::from_millis(LONGEST_WINDOW));
    }

    #[test]
    fn a_clock_that_steps_back_over_a_boundary_stays_in_the_window() {
        let rule = rule(2, 100, false);
        let mut bucket = Bucket::new(rule);
        assert!(bucket.take(1_000).allowed);
        assert!(bucket.take(999).allowed);
        assert!(!bucket.take(998).allowed);
        assert!(!bucket.take(1_001).allowed);
    }

    #[test]
    fn a_clock_that_steps_back_further_starts_afresh() {
        let rule = rule(1, 100, true);
        let mut bucket = Bucket::new(rule);
        assert!(bucket.take(5_000).allowed);
        assert!(bucket.take(1_000).allowed);
    }

    #[test]
    fn counts_above_a_limit_that_was_lowered_wait_for_their_weight_or_a_window() {
        let rule = rule(8, 100, true);
        let count = |idle| Count {
            previous: 0,
            current: 10,
            elapsed: 40,
            idle,
        };
        // 60 ms to the boundary, then until 10 requests weigh 7: 30 ms more.
        assert_eq!(rule.taken(false, &count(0)).retry_after, Duration::from_millis(90));
        // A window without an admitted request is over sooner.
        assert_eq!(rule.taken(false, &count(30)).retry_after, Duration::from_millis(70));
    }

    #[test]
    fn a_window_without_an_admitted_request_starts_afresh() {
        let rule = rule(1_000, 10_000, true);
        let mut bucket = Bucket::new(rule);
        // All of the limit at the end of an aligned window weighs on the whole of the next one.
        (0..1_000).for_each(|_| assert!(bucket.take(19_999).allowed));
        let refused = bucket.take(19_999);
        assert_eq!(
            (refused.allowed, refused.retry_after),
            (false, Duration::from_millis(11))
        );
        let mut all = Bucket {
            rule: Rule { cost: 1_000, ..rule },
            ..bucket
        };
        let refused = all.take(20_000);
        assert_eq!(
            (refused.allowed, refused.retry_after),
            (false, Duration::from_millis(9_999))
        );
        assert!(!all.take(29_998).allowed);
        assert!(all.take(29_999).allowed);
    }
}
