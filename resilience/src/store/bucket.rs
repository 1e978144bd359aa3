//! The arithmetic of the token bucket, exact: nothing is rounded in what is stored, hence nothing drifts.
//!
//! This is the generic cell rate algorithm in its form as virtual scheduling (ITU-T I.371, annex A; ATM Forum Traffic
//! Management Specification 4.0, section 4.4.2). A bucket holds `burst` tokens and gains `limit` of them in a `window`,
//! evenly. All that is kept is the instant at which it will be full again, the theoretical arrival time of the standard;
//! how far that lies ahead is what the bucket lacks. It admits at most `burst + limit * d / window` in any span of `d`.
//!
//! `limit` tokens seldom come at whole milliseconds, so instants and spans are whole milliseconds and a number of
//! `limit`ths of one. `scripts/take.lua` mirrors [`Rule::lacking`], [`Rule::fits`] and [`Rule::charge`] in sums of
//! numbers below 2^53, which are exact there too, for the largest quota as well.

use std::time::Duration;

use super::{Taken, window::remaining};

/// When a client's bucket will be full again, by the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    millis: u64,
    parts: u32,
}

/// A length of time: milliseconds, and less than `limit` parts of which `limit` make one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) millis: u64,
    pub(crate) parts: u32,
}

/// A quota and a request's cost in the units of the arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// At least 1.
    pub(crate) limit: u32,
    /// In milliseconds, at least 1.
    pub(crate) window: u64,
    /// From 1 to the limit.
    pub(crate) burst: u32,
    /// From 1 to the burst.
    pub(crate) cost: u32,
}

impl Rule {
    /// How long ago the bucket would have to be left alone to be full at `now`.
    pub(crate) fn lacking(&self, stored: Stored, now: u64) -> Span {
        match stored.millis.checked_sub(now) {
            // A bucket lacks a window's worth at most. More than two: the clock has stepped back, so start afresh.
            Some(millis) if millis <= 2 * self.window => Span {
                millis,
                // Of a limit that was higher.
                parts: stored.parts.min(self.limit - 1),
            },
            _ => Span::default(),
        }
    }

    /// What to store of a bucket that lacks this at `now`.
    pub(crate) const fn stored(&self, lacking: Span, now: u64) -> Stored {
        Stored {
            millis: now + lacking.millis,
            parts: lacking.parts,
        }
    }

    /// Whether there are tokens for the request.
    pub(crate) fn fits(&self, lacking: Span) -> bool {
        lacking <= self.slack()
    }

    /// Takes the request's tokens.
    pub(crate) fn charge(&self, lacking: &mut Span) {
        *lacking = self.span(self.parts(*lacking) + self.parts(self.step()));
    }

    /// How long it takes to gain what the request costs.
    pub(crate) fn step(&self) -> Span {
        self.span(u128::from(self.cost) * u128::from(self.window))
    }

    /// How much a bucket may lack to have the request's tokens still.
    pub(crate) fn slack(&self) -> Span {
        self.span(u128::from(self.burst - self.cost) * u128::from(self.window))
    }

    /// Milliseconds until a bucket is full again: when they run out, an empty entry says the same.
    pub(crate) fn lifetime(&self, lacking: Span) -> u64 {
        lacking.millis + u64::from(lacking.parts > 0)
    }

    /// The answer for a quota that had room (`allowed`) or had none, with what it lacks after the decision.
    pub(crate) fn taken(&self, allowed: bool, after: Span) -> Taken {
        let missing = self.parts(after).saturating_sub(self.parts(self.slack()));
        let wait = millis(missing.div_ceil(self.limit.into())).max(u64::from(!allowed));
        Taken {
            allowed,
            remaining: remaining(allowed, self.tokens(after), self.cost.into()),
            retry_after: Duration::from_millis(wait),
            reset: Duration::from_millis(wait.max(self.lifetime(after))),
        }
    }

    /// Whole tokens in a bucket that lacks this.
    fn tokens(&self, lacking: Span) -> u32 {
        let gone = self.parts(lacking).div_ceil(self.window.into());
        self.burst.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX))
    }

    fn parts(&self, span: Span) -> u128 {
        u128::from(span.millis) * u128::from(self.limit) + u128::from(span.parts)
    }

    fn span(&self, parts: u128) -> Span {
        let limit = u128::from(self.limit);
        Span {
            millis: millis(parts / limit),
            parts: u32::try_from(parts % limit).expect("less than the limit"),
        }
    }
}

/// No quota reaches the end of the range: windows have 366 days at most.
fn millis(millis: u128) -> u64 {
    u64::try_from(millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bucket that is filled millisecond by millisecond, in `window`ths of a token.
    struct Model {
        rule: Rule,
        level: u64,
        now: u64,
    }

    impl Model {
        fn new(rule: Rule, now: u64) -> Self {
            let level = u64::from(rule.burst) * rule.window;
            Self { rule, level, now }
        }

        fn take(&mut self, now: u64) -> bool {
            let full = u64::from(self.rule.burst) * self.rule.window;
            while self.now < now {
                self.level = full.min(self.level + u64::from(self.rule.limit));
                self.now += 1;
            }
            let rest = self.level.checked_sub(u64::from(self.rule.cost) * self.rule.window);
            self.level = rest.unwrap_or(self.level);
            rest.is_some()
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
            let mut lacking = self.rule.lacking(self.stored, now);
            let allowed = self.rule.fits(lacking);
            if allowed {
                self.rule.charge(&mut lacking);
                self.stored = self.rule.stored(lacking, now);
            }
            self.rule.taken(allowed, lacking)
        }
    }

    fn rule(limit: u32, window: u64, burst: u32) -> Rule {
        Rule {
            limit,
            window,
            burst,
            cost: 1,
        }
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let numbers = (1..20_u32)
            .prop_flat_map(|limit| (Just(limit), prop_oneof![Just(limit), 1..=limit]))
            .prop_flat_map(|(limit, burst)| (Just(limit), Just(burst), prop_oneof![Just(1), 1..=burst]));
        (numbers, 1..500_u64).prop_map(|((limit, burst, cost), window)| Rule {
            cost,
            ..rule(limit, window, burst)
        })
    }

    fn gaps() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![4 => 0..3_u64, 3 => 0..40_u64, 1 => 0..900_u64], 1..200)
    }

    proptest! {
        #[test]
        fn decides_as_the_model_does(rule in rules(), gaps in gaps()) {
            let mut now = 10_000;
            let mut bucket = Bucket::new(rule);
            let mut model = Model::new(rule, now);
            for gap in gaps {
                now += gap;
                prop_assert_eq!(bucket.take(now).allowed, model.take(now));
            }
        }

        #[test]
        fn admits_no_more_than_the_burst_and_what_came_since(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            let mut admitted = Vec::new();
            for gap in gaps {
                now += gap;
                if bucket.take(now).allowed {
                    admitted.push(now);
                }
            }
            for (nth, first) in admitted.iter().enumerate() {
                for (more, last) in admitted[nth..].iter().enumerate() {
                    let tokens = (more as u64 + 1) * u64::from(rule.cost);
                    let most = u64::from(rule.burst) * rule.window + (last - first) * u64::from(rule.limit);
                    prop_assert!(tokens * rule.window <= most);
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
                prop_assert_eq!(wait > 0, !taken.allowed || taken.remaining < rule.cost);
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
                let mut one_by_one = Bucket { rule: Rule { cost: 1, ..rule }, ..bucket };
                let passed = (0..=rule.burst).take_while(|_| one_by_one.take(now).allowed).count();
                prop_assert_eq!(remaining as usize, passed);
            }
        }

        #[test]
        fn a_bucket_is_full_once_its_lifetime_is_over_and_no_sooner(rule in rules(), gaps in gaps()) {
            let mut bucket = Bucket::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                if bucket.take(now).allowed {
                    let full = now + rule.lifetime(rule.lacking(bucket.stored, now));
                    prop_assert_eq!(rule.lacking(bucket.stored, full), Span::default());
                    prop_assert_ne!(rule.lacking(bucket.stored, full - 1), Span::default());
                }
            }
        }
    }

    #[test]
    fn thirds_of_a_millisecond_add_up() {
        let start = 1_700_000_000_000;
        let mut bucket = Bucket::new(rule(3, 10, 2));
        (0..2).for_each(|_| assert!(bucket.take(start).allowed));
        let admitted = (1..=300_000).filter(|after| bucket.take(start + after).allowed).count();
        assert_eq!(admitted, 90_000);
    }

    #[test]
    fn the_largest_quota_overflows_nothing() {
        const LONGEST_WINDOW: u64 = 366 * 24 * 60 * 60 * 1000;
        let rule = Rule {
            cost: u32::MAX,
            ..rule(u32::MAX, LONGEST_WINDOW, u32::MAX)
        };
        let mut bucket = Bucket::new(rule);
        let first = bucket.take(1_700_000_000_000);
        assert_eq!((first.allowed, first.remaining), (true, 0));
        assert_eq!(first.retry_after, Duration::from_millis(LONGEST_WINDOW));
        let refused = bucket.take(1_700_000_000_001);
        assert_eq!((refused.allowed, refused.remaining), (false, 0));
        assert_eq!(refused.retry_after, Duration::from_millis(LONGEST_WINDOW - 1));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let mut bucket = Bucket::new(rule(2, 100, 2));
        (0..2).for_each(|_| assert!(bucket.take(1_000).allowed));
        let refused = bucket.take(950);
        assert_eq!((refused.allowed, refused.retry_after.as_millis()), (false, 100));
    }

    #[test]
    fn a_clock_that_steps_back_further_starts_afresh() {
        let mut bucket = Bucket::new(rule(1, 100, 1));
        assert!(bucket.take(5_000).allowed);
        assert!(bucket.take(1_000).allowed);
    }

    #[test]
    fn a_limit_that_was_changed_keeps_what_is_lacking() {
        let mut bucket = Bucket::new(rule(30, 100, 30));
        (0..8).for_each(|_| assert!(bucket.take(1_000).allowed));
        bucket.rule = rule(2, 100, 1);
        // Eight thirtieths of the window are lacking: 26.67 ms.
        let refused = bucket.take(1_000);
        assert_eq!((refused.allowed, refused.retry_after.as_millis()), (false, 27));
    }
}
