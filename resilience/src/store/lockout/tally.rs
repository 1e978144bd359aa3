//! The arithmetic of tallies, in whole milliseconds.
//!
//! A tally is an exact sliding log: each attempt that counts is in it with its time, so that exactly that one can be taken
//! off again. `redis/scripts/tally.lua` mirrors it.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Attempt, Begun, Lockout, LockoutStatus, Settle};

/// A lockout's numbers, brought into their range.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// From 1 to [`MOST_ATTEMPTS`].
    pub(crate) attempts: usize,
    /// Milliseconds, not empty, each at least 1.
    pub(crate) durations: SmallVec<[u64; 4]>,
}

/// What is stored per lockout and subject. Times are milliseconds of the store's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Locks that are remembered, a present one included.
    pub(crate) locks: u32,
    /// When the present lock ends; 0 without one.
    pub(crate) locked_until: u64,
    /// When the locks are forgotten.
    pub(crate) remembered_until: u64,
    /// When each attempt began, and its id.
    pub(crate) attempts: Vec<(u64, u64)>,
}

/// More would make tallies long, and a lockout pointless.
pub(crate) const MOST_ATTEMPTS: u32 = 1_000;

/// 366 days.
const LONGEST: u64 = 366 * 24 * 60 * 60 * 1_000;

impl Rule {
    pub(crate) fn of(lockout: &Lockout) -> Self {
        let millis = |duration: &Duration| {
            u64::try_from(duration.as_millis())
                .unwrap_or(u64::MAX)
                .clamp(1, LONGEST)
        };
        let mut durations: SmallVec<_> = lockout.durations.iter().map(millis).collect();
        if durations.is_empty() {
            durations.push(LONGEST);
        }
        Self {
            attempts: lockout.attempts.clamp(1, MOST_ATTEMPTS) as usize,
            durations,
        }
    }

    /// How long attempts count, and locks are remembered after they have ended.
    pub(crate) fn longest(&self) -> u64 {
        self.durations.last().copied().unwrap_or(LONGEST)
    }

    fn duration(&self, locks: u32) -> u64 {
        let last = self.durations.len() - 1;
        self.durations[usize::try_from(locks).unwrap_or(last).min(last)]
    }
}

impl Tally {
    /// Brings the tally to `now`: what has run out is gone.
    pub(crate) fn advance(&mut self, rule: &Rule, now: u64) {
        let longest = rule.longest();
        // Further ahead than any lock reaches: the clock has stepped back, or the durations are shorter than they were.
        self.locked_until = self.locked_until.min(now.saturating_add(longest));
        self.remembered_until = self.remembered_until.min(now.saturating_add(2 * longest));
        if self.locked_until != 0 && self.locked_until <= now {
            self.locked_until = 0;
            self.attempts.clear();
        }
        if self.locked_until == 0 && self.remembered_until <= now {
            self.locks = 0;
            self.remembered_until = 0;
        }
        for (at, _) in &mut self.attempts {
            *at = (*at).min(now);
        }
        // All that have led to a lock stay while it stands: any of them may yet turn out to be none, and lift it.
        if !self.is_locked() {
            self.attempts.retain(|(at, _)| at + longest > now);
        }
    }

    /// Whether an attempt is refused. Of a tally that was brought to now.
    pub(crate) const fn is_locked(&self) -> bool {
        self.locked_until != 0
    }

    /// Counts an attempt that every tally has let pass.
    pub(crate) fn charge(&mut self, rule: &Rule, now: u64, id: u64) {
        self.attempts.push((now, id));
        if self.attempts.len() >= rule.attempts {
            self.locked_until = now.saturating_add(rule.duration(self.locks));
            self.remembered_until = self.locked_until.saturating_add(rule.longest());
            self.locks = self.locks.saturating_add(1);
        }
    }

    /// Settles an attempt that does not stay counted; `false` if that changes nothing. Brings the tally to `now`.
    pub(crate) fn settle(&mut self, rule: &Rule, now: u64, id: u64, settle: Settle) -> bool {
        self.advance(rule, now);
        match settle {
            Settle::Clear => std::mem::take(self) != Self::default(),
            Settle::GiveBack => {
                let Some(place) = self.attempts.iter().position(|(_, counted)| *counted == id) else {
                    return false;
                };
                self.attempts.remove(place);
                // The lock came of exactly as many attempts as it takes: without this one it has no ground.
                if std::mem::take(&mut self.locked_until) != 0 {
                    self.locks = self.locks.saturating_sub(1);
                }
                if self.locks == 0 {
                    self.remembered_until = 0;
                }
                self.advance(rule, now);
                true
            }
        }
    }

    /// The answer to an attempt, as the tally stands after the decision.
    pub(crate) fn begun(&self, rule: &Rule, now: u64, allowed: bool) -> Begun {
        let remaining = if self.is_locked() {
            0
        } else {
            rule.attempts - self.attempts.len().min(rule.attempts)
        };
        Begun {
            allowed,
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            retry_after: match allowed {
                true => Duration::ZERO,
                false => Duration::from_millis(self.locked_until.saturating_sub(now).max(1)),
            },
        }
    }

    pub(crate) fn status(&self, now: u64) -> LockoutStatus {
        LockoutStatus {
            attempts: u32::try_from(self.attempts.len()).unwrap_or(u32::MAX),
            locked_for: self
                .is_locked()
                .then(|| Duration::from_millis(self.locked_until.saturating_sub(now).max(1))),
            locks: self.locks,
        }
    }

    /// When all that the tally says has run out.
    pub(crate) fn expires(&self, rule: &Rule) -> u64 {
        let last = self.attempts.iter().map(|(at, _)| at + rule.longest()).max();
        self.locked_until.max(self.remembered_until).max(last.unwrap_or(0))
    }
}

/// Begins each attempt or none. The tallies are brought to `now`, and charged if none is locked.
pub(crate) fn begin(tallies: &mut [Tally], attempts: &[Attempt<'_>], now: u64) -> (bool, Vec<Begun>) {
    let rules: SmallVec<[Rule; 2]> = attempts.iter().map(|attempt| Rule::of(attempt.lockout)).collect();
    for (tally, rule) in tallies.iter_mut().zip(&rules) {
        tally.advance(rule, now);
    }
    let locked: SmallVec<[bool; 2]> = tallies.iter().map(Tally::is_locked).collect();
    let all = !locked.contains(&true);
    let each = tallies.iter_mut().zip(&rules).zip(attempts).zip(&locked);
    let begun = each.map(|(((tally, rule), attempt), &locked)| {
        if all {
            tally.charge(rule, now, attempt.id);
        }
        tally.begun(rule, now, !locked)
    });
    (all, begun.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60_000;
    const NOON: u64 = 1_000 * MINUTE;

    fn lockout(attempts: u32, minutes: &[u64]) -> Lockout {
        Lockout {
            id: "login".to_owned(),
            attempts,
            durations: minutes
                .iter()
                .map(|minutes| Duration::from_secs(minutes * 60))
                .collect(),
        }
    }

    fn attempt(tally: &mut Tally, lockout: &Lockout, now: u64, id: u64) -> Begun {
        let attempts = [Attempt {
            lockout,
            subject: "ada",
            id,
        }];
        begin(std::slice::from_mut(tally), &attempts, now).1[0]
    }

    fn settle(tally: &mut Tally, lockout: &Lockout, now: u64, id: u64, settle: Settle) {
        tally.settle(&Rule::of(lockout), now, id, settle);
    }

    #[test]
    fn the_last_attempt_goes_on_and_the_next_has_to_wait() {
        let (lockout, mut tally) = (lockout(3, &[15]), Tally::default());
        for (id, remaining) in [(1, 2), (2, 1), (3, 0)] {
            let begun = attempt(&mut tally, &lockout, NOON, id);
            assert_eq!((begun.allowed, begun.remaining), (true, remaining));
        }
        let refused = attempt(&mut tally, &lockout, NOON + MINUTE, 4);
        assert_eq!((refused.allowed, refused.remaining), (false, 0));
        assert_eq!(refused.retry_after, Duration::from_secs(14 * 60));
    }

    #[test]
    fn attempts_during_a_lock_do_not_extend_it() {
        let (lockout, mut tally) = (lockout(1, &[15]), Tally::default());
        assert!(attempt(&mut tally, &lockout, NOON, 1).allowed);
        for minute in 0..15 {
            assert!(!attempt(&mut tally, &lockout, NOON + minute * MINUTE, 2).allowed);
        }
        assert!(attempt(&mut tally, &lockout, NOON + 15 * MINUTE, 3).allowed);
    }

    #[test]
    fn locks_last_longer_each_time_and_are_forgotten_at_last() {
        let (lockout, mut tally) = (lockout(1, &[1, 5, 15]), Tally::default());
        let mut now = NOON;
        for minutes in [1, 5, 15, 15] {
            assert!(attempt(&mut tally, &lockout, now, 1).allowed);
            let wait = attempt(&mut tally, &lockout, now, 2).retry_after;
            assert_eq!(wait, Duration::from_secs(minutes * 60));
            now += minutes * MINUTE;
        }
        now += 15 * MINUTE;
        assert!(attempt(&mut tally, &lockout, now, 1).allowed);
        assert_eq!(
            attempt(&mut tally, &lockout, now, 2).retry_after,
            Duration::from_secs(60)
        );
    }

    #[test]
    fn what_is_given_back_lifts_the_lock_that_came_of_it() {
        let (lockout, mut tally) = (lockout(2, &[1, 5]), Tally::default());
        attempt(&mut tally, &lockout, NOON, 1);
        attempt(&mut tally, &lockout, NOON, 2);
        assert!(tally.is_locked());
        settle(&mut tally, &lockout, NOON, 1, Settle::GiveBack);
        assert_eq!((tally.is_locked(), tally.locks, tally.attempts.len()), (false, 0, 1));
        // And again: it stays the first lock.
        assert!(attempt(&mut tally, &lockout, NOON, 3).allowed);
        assert_eq!(
            attempt(&mut tally, &lockout, NOON, 4).retry_after,
            Duration::from_secs(60)
        );
    }

    #[test]
    fn an_attempt_that_is_settled_after_its_lock_changes_nothing() {
        let (lockout, mut tally) = (lockout(1, &[1, 5]), Tally::default());
        attempt(&mut tally, &lockout, NOON, 1);
        let later = NOON + MINUTE;
        assert!(attempt(&mut tally, &lockout, later, 2).allowed);
        let before = tally.clone();
        settle(&mut tally, &lockout, later, 1, Settle::GiveBack);
        assert_eq!(tally, before);
    }

    #[test]
    fn a_clock_that_steps_back_locks_nobody_for_longer() {
        let (lockout, mut tally) = (lockout(1, &[15]), Tally::default());
        attempt(&mut tally, &lockout, NOON, 1);
        let refused = attempt(&mut tally, &lockout, NOON - 600 * MINUTE, 2);
        assert_eq!(refused.retry_after, Duration::from_secs(15 * 60));
    }

    /// A plain history of what happened, from which every answer is worked out anew.
    #[derive(Default)]
    struct History {
        kept: Vec<(u64, u64)>,
        locks: Vec<(u64, u64)>,
    }

    impl History {
        /// Locks within one row: each began before the one ahead of it was forgotten.
        fn row(&self, longest: u64, now: u64) -> usize {
            let mut row = 0;
            let mut known = None;
            for &(begun, ends) in &self.locks {
                row = if known.is_none_or(|known| begun < known) {
                    row + 1
                } else {
                    1
                };
                known = Some(ends + longest);
            }
            if known.is_some_and(|known| now < known) { row } else { 0 }
        }

        fn begin(&mut self, attempts: usize, durations: &[u64], now: u64, id: u64) -> Option<u64> {
            let longest = *durations.last().expect("not empty");
            if let Some((_, ends)) = self.locks.last().filter(|(_, ends)| now < *ends) {
                return Some(ends - now);
            }
            let row = self.row(longest, now);
            let since = self.locks.last().map_or(0, |(_, ends)| *ends);
            self.kept.retain(|(at, _)| *at >= since && at + longest > now);
            self.kept.push((now, id));
            if self.kept.len() >= attempts {
                self.locks.push((now, now + durations[row.min(durations.len() - 1)]));
            }
            None
        }
    }

    proptest! {
        #[test]
        fn attempts_that_stay_counted_are_decided_as_a_plain_history_says(
            attempts in 1_u32..4,
            minutes in prop::collection::btree_set(1_u64..8, 1..4),
            steps in prop::collection::vec(0_u64..3 * MINUTE, 1..60),
        ) {
            let minutes: Vec<_> = minutes.into_iter().collect();
            let lockout = lockout(attempts, &minutes);
            let millis: Vec<_> = minutes.iter().map(|minutes| minutes * MINUTE).collect();
            let (mut tally, mut history, mut now) = (Tally::default(), History::default(), NOON);
            for (id, step) in (0..).zip(steps) {
                now += step;
                let begun = attempt(&mut tally, &lockout, now, id);
                let wait = history.begin(attempts as usize, &millis, now, id);
                prop_assert_eq!(begun.allowed, wait.is_none());
                prop_assert_eq!(begun.retry_after, Duration::from_millis(wait.unwrap_or(0)));
            }
        }

        #[test]
        fn whatever_happens_no_more_than_the_limit_is_kept_and_waits_are_enough(
            attempts in 1_u32..5,
            minutes in prop::collection::btree_set(1_u64..8, 1..4),
            steps in prop::collection::vec((0_u64..2 * MINUTE, 0_u8..6, 0_u64..8), 1..80),
        ) {
            let minutes: Vec<_> = minutes.into_iter().collect();
            let lockout = lockout(attempts, &minutes);
            let rule = Rule::of(&lockout);
            let (mut tally, mut now) = (Tally::default(), NOON);
            for (nth, (step, what, back)) in (0..).zip(steps) {
                now += step;
                match what {
                    0 => settle(&mut tally, &lockout, now, nth - back.min(nth), Settle::Clear),
                    1 | 2 => settle(&mut tally, &lockout, now, nth - back.min(nth), Settle::GiveBack),
                    _ => {
                        let begun = attempt(&mut tally, &lockout, now, nth);
                        if !begun.allowed {
                            let mut later = tally.clone();
                            later.advance(&rule, now + begun.retry_after.as_millis() as u64);
                            prop_assert!(!later.is_locked());
                            let mut earlier = tally.clone();
                            earlier.advance(&rule, now + begun.retry_after.as_millis() as u64 - 1);
                            prop_assert!(earlier.is_locked());
                        }
                    }
                }
                prop_assert!(tally.attempts.len() <= attempts as usize);
                prop_assert_eq!(tally.is_locked(), tally.attempts.len() == attempts as usize);
                prop_assert!(tally == Tally::default() || tally.expires(&rule) > now);
                let mut at_expiry = tally.clone();
                at_expiry.advance(&rule, tally.expires(&rule));
                prop_assert_eq!(at_expiry, Tally::default());
            }
        }
    }
}
