//! The arithmetic of the exact sliding log, in whole milliseconds.
//!
//! The time of every admitted unit is kept, oldest first, for one window. A request of cost `c` adds its time `c` times. A
//! unit admitted at `t` counts until `t + window`, so no span of one window ever sees more than `limit` units, and a
//! request is admitted whenever there is room. `scripts/take.lua` mirrors [`Rule::count`] and [`Stored::write`].

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::{Taken, window::remaining};

/// The highest limit of which each unit is kept. Higher limits are counted by [`window`](super::window).
pub(crate) const LONGEST: u32 = 100;

/// What is stored per client and quota: the time of each admitted unit, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    times: SmallVec<[u64; 2]>,
}

/// The log as it is at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Units in the last window.
    pub(crate) used: u32,
    /// Milliseconds until the oldest unit leaves; 0 if there is none.
    pub(crate) leaves: u64,
    /// Milliseconds until enough units have left: for the request if it does not fit, else for another of its cost. 0 if
    /// no unit that was stored before has to leave.
    pub(crate) due: u64,
    /// Units that the present request has added.
    added: u32,
}

/// A quota and a request's cost in the units of the arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// From 1 to [`LONGEST`].
    pub(crate) limit: u32,
    /// In milliseconds, at least 1.
    pub(crate) window: u64,
    /// From 1 to the limit.
    pub(crate) cost: u32,
}

impl Stored {
    /// A log of this many units, all admitted at `last`.
    pub(crate) fn of(units: u32, last: u64) -> Self {
        let times = smallvec![last; units as usize];
        Self { times }
    }

    /// When the last unit was admitted.
    pub(crate) fn last(&self) -> Option<u64> {
        self.times.last().copied()
    }

    /// Drops what has left the log by `now`, and adds the units of a request that was charged.
    pub(crate) fn write(&mut self, rule: &Rule, count: &Count, now: u64) {
        let gone = rule.gone(self, now);
        self.times.drain(..gone);
        // The clock has stepped back: without this, these units would count until it has caught up.
        for at in self.times.iter_mut().rev().take_while(|at| **at > now) {
            *at = now;
        }
        self.times.extend((0..count.added).map(|_| now));
    }
}

impl Count {
    /// What a store has counted by itself.
    pub(crate) const fn new(used: u32, leaves: u64, due: u64) -> Self {
        Self {
            used,
            leaves,
            due,
            added: 0,
        }
    }
}

impl Rule {
    /// What `stored` amounts to at `now`. Times in the future count as now.
    pub(crate) fn count(&self, stored: &Stored, now: u64) -> Count {
        let times = &stored.times[self.gone(stored, now)..];
        let used = u32::try_from(times.len()).unwrap_or(u32::MAX);
        let left = |at: u64| at.min(now) + self.window - now;
        let mut count = Count::new(used, times.first().map_or(0, |at| left(*at)), 0);
        let wanted = if self.fits(&count) { 2 * self.cost } else { self.cost };
        let surplus = (used + wanted).saturating_sub(self.limit) as usize;
        if (1..=times.len()).contains(&surplus) {
            count.due = left(times[surplus - 1]);
        }
        count
    }

    /// Whether there is room for the request.
    pub(crate) const fn fits(&self, count: &Count) -> bool {
        count.used.saturating_add(self.cost) <= self.limit
    }

    /// Counts the request.
    pub(crate) fn charge(&self, count: &mut Count) {
        count.used = count.used.saturating_add(self.cost);
        count.added = self.cost;
        if count.leaves == 0 {
            count.leaves = self.window;
        }
    }

    /// The answer for a quota that had room (`allowed`) or had none, with the count after the decision.
    pub(crate) fn taken(&self, allowed: bool, after: &Count) -> Taken {
        let wait = match (self.fits(after), after.due) {
            (true, _) => u64::from(!allowed),
            // This request's own units have to leave.
            (false, 0) => self.window,
            (false, due) => due,
        };
        let room = self.limit.saturating_sub(after.used);
        Taken {
            allowed,
            remaining: remaining(allowed, room, self.cost.into()),
            retry_after: Duration::from_millis(wait),
            reset: Duration::from_millis(wait.max(after.leaves)),
        }
    }

    /// How many units have left the log by `now`.
    fn gone(&self, stored: &Stored, now: u64) -> usize {
        stored.times.partition_point(|at| at.saturating_add(self.window) <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Looks at every unit that was ever admitted.
    struct Model {
        rule: Rule,
        admitted: Vec<u64>,
    }

    impl Model {
        fn take(&mut self, now: u64) -> bool {
            let recent = self.admitted.iter().filter(|at| now - **at < self.rule.window).count();
            let passes = recent + self.rule.cost as usize <= self.rule.limit as usize;
            if passes {
                self.admitted.extend((0..self.rule.cost).map(|_| now));
            }
            passes
        }
    }

    /// One quota of one client; a clone shows what would happen.
    #[derive(Clone)]
    struct Log {
        rule: Rule,
        stored: Stored,
    }

    impl Log {
        fn new(rule: Rule) -> Self {
            let stored = Stored::default();
            Self { rule, stored }
        }

        fn take(&mut self, now: u64) -> Taken {
            let mut count = self.rule.count(&self.stored, now);
            let allowed = self.rule.fits(&count);
            if allowed {
                self.rule.charge(&mut count);
            }
            self.stored.write(&self.rule, &count, now);
            self.rule.taken(allowed, &count)
        }
    }

    fn rule(limit: u32, window: u64) -> Rule {
        let cost = 1;
        Rule { limit, window, cost }
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let limit_and_cost = (1..20_u32).prop_flat_map(|limit| (Just(limit), prop_oneof![Just(1), 1..=limit]));
        (limit_and_cost, 1..500_u64).prop_map(|((limit, cost), window)| Rule { limit, window, cost })
    }

    fn gaps() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![4 => 0..3_u64, 3 => 0..40_u64, 1 => 0..900_u64], 1..200)
    }

    proptest! {
        #[test]
        fn decides_as_the_model_does(rule in rules(), gaps in gaps()) {
            let mut log = Log::new(rule);
            let mut model = Model { rule, admitted: Vec::new() };
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                prop_assert_eq!(log.take(now).allowed, model.take(now));
                prop_assert!(log.stored.times.len() <= rule.limit as usize);
            }
        }

        #[test]
        fn never_admits_more_than_the_limit_in_any_window(rule in rules(), gaps in gaps()) {
            let mut log = Log::new(rule);
            let mut now = 10_000;
            let mut admitted = Vec::new();
            for gap in gaps {
                now += gap;
                if log.take(now).allowed {
                    admitted.extend((0..rule.cost).map(|_| now));
                }
            }
            for (nth, first) in admitted.iter().enumerate() {
                let within = admitted[nth..].iter().filter(|at| **at - first < rule.window).count();
                prop_assert!(within <= rule.limit as usize);
            }
        }

        #[test]
        fn a_retry_passes_after_its_wait_and_no_sooner(rule in rules(), gaps in gaps()) {
            let mut log = Log::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                let taken = log.take(now);
                let wait = u64::try_from(taken.retry_after.as_millis()).unwrap();
                prop_assert!(wait <= rule.window);
                prop_assert_eq!(wait > 0, !taken.allowed || taken.remaining < rule.cost);
                prop_assert!(taken.reset >= taken.retry_after && taken.reset > Duration::ZERO);
                if wait > 0 {
                    let (mut early, mut due) = (log.clone(), log.clone());
                    prop_assert!(!early.take(now + wait - 1).allowed);
                    prop_assert!(due.take(now + wait).allowed);
                }
            }
        }

        #[test]
        fn remaining_is_how_much_more_passes_at_once(rule in rules(), gaps in gaps()) {
            let mut log = Log::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                let remaining = log.take(now).remaining;
                let mut burst = Log { rule: Rule { cost: 1, ..rule }, ..log.clone() };
                let passed = (0..=rule.limit).take_while(|_| burst.take(now).allowed).count();
                prop_assert_eq!(remaining as usize, passed);
            }
        }

        #[test]
        fn the_reset_is_when_the_oldest_unit_leaves(gaps in gaps()) {
            let rule = rule(1_000, 500);
            let mut log = Log::new(rule);
            let mut now = 10_000;
            for gap in gaps {
                now += gap;
                let reset = u64::try_from(log.take(now).reset.as_millis()).unwrap();
                let used = rule.count(&log.stored, now).used;
                prop_assert_eq!(rule.count(&log.stored, now + reset - 1).used, used);
                prop_assert!(rule.count(&log.stored, now + reset).used < used);
            }
        }

        #[test]
        fn a_clock_that_steps_back_locks_nobody_out_for_longer_than_a_window(
            rule in rules(),
            steps in prop::collection::vec(-900..900_i64, 1..100),
        ) {
            let mut log = Log::new(rule);
            let mut now = 1_000_000_u64;
            for step in steps {
                now = now.saturating_add_signed(step);
                let taken = log.take(now);
                let wait = u64::try_from(taken.retry_after.as_millis()).unwrap();
                prop_assert!(wait <= rule.window);
                prop_assert!(log.clone().take(now + wait).allowed);
            }
        }
    }

    #[test]
    fn a_steady_client_gets_the_whole_limit() {
        for (limit, window) in [(1, 1_000), (2, 3_000), (5, 10_000), (100, 60_000)] {
            let mut log = Log::new(rule(limit, window));
            let passed = (0..8 * window)
                .step_by(10)
                .filter(|at| log.take(1_000_000 + at).allowed);
            assert_eq!(passed.count(), 8 * limit as usize, "{limit} in {window}");
        }
    }

    #[test]
    fn units_above_a_limit_that_was_lowered_leave_one_by_one() {
        let mut log = Log::new(rule(10, 100));
        (0..10).for_each(|at| assert!(log.take(1_000 + at).allowed));
        log.rule.limit = 2;
        // The first nine have to leave.
        let refused = log.take(1_010);
        assert_eq!((refused.allowed, refused.remaining), (false, 0));
        assert_eq!(refused.retry_after, Duration::from_millis(98));
        log.rule.limit = 12;
        assert_eq!(log.take(1_010).remaining, 1);
    }
}
