//! The arithmetic of tallies, in whole milliseconds.
//!
//! A tally is an exact sliding log: each attempt under way and each failure that counts is in it with its time, its id and
//! its origin, so that exactly that one can be taken off again. `redis/scripts/tally.lua` mirrors it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use super::{Attempt, Begun, Lockout, LockoutStatus, Refused, Settle};

/// A lockout's numbers, brought into their range.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// From 1 to [`MOST_ATTEMPTS`].
    pub(crate) attempts: usize,
    /// Milliseconds, not empty, each at least 1.
    pub(crate) durations: SmallVec<[u64; 4]>,
}

/// The record of one lockout and subject. Times are milliseconds of the store's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Locks that are remembered, a present one included.
    pub(crate) locks: u32,
    /// When the present lock ends; 0 without one.
    pub(crate) locked_until: u64,
    /// When the locks are forgotten.
    pub(crate) remembered_until: u64,
    /// The origin of every failure that led to one of the locks; [`NO_ORIGIN`] without a lock, [`MIXED`] for several.
    pub(crate) origin: u64,
    /// In the order of their times, which are those of the failures.
    pub(crate) failed: Vec<Entry>,
    /// In the order of their times, which are those of the beginnings.
    pub(crate) pending: Vec<Entry>,
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) id: u64,
    pub(crate) origin: u64,
}

/// More would make tallies long, and a lockout pointless.
pub(crate) const MOST_ATTEMPTS: u32 = 1_000;

/// How long an attempt may be under way, in milliseconds: several times as long as a slow login takes, and short enough
/// that the attempts of a crashed instance do not hold up the account for long. One that is not settled by then counts as
/// failed from that moment on; a later success still takes it off.
pub(crate) const LEASE: u64 = 30_000;

/// The longest wait that is told while attempts are under way, in milliseconds. Most of them end sooner than their lease.
pub(crate) const BUSY_WAIT: u64 = 1_000;

pub(crate) const NO_ORIGIN: u64 = 0;
pub(crate) const MIXED: u64 = u64::MAX;

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

    /// How long failures count, and locks are remembered after they have ended.
    pub(crate) fn longest(&self) -> u64 {
        self.durations.last().copied().unwrap_or(LONGEST)
    }

    fn duration(&self, locks: u32) -> u64 {
        let last = self.durations.len() - 1;
        self.durations[usize::try_from(locks).unwrap_or(last).min(last)]
    }
}

impl Tally {
    /// Brings the tally to `now`: expired entries are removed, and attempts whose lease has ended have failed.
    pub(crate) fn advance(&mut self, rule: &Rule, now: u64) {
        let longest = rule.longest();
        // Further ahead than any lock reaches: the clock has stepped back, or the durations are shorter than they were.
        self.locked_until = self.locked_until.min(now.saturating_add(longest));
        self.remembered_until = self.remembered_until.min(now.saturating_add(2 * longest));
        for entry in self.failed.iter_mut().chain(&mut self.pending) {
            entry.at = entry.at.min(now);
        }
        let due = self.pending.iter().take_while(|entry| entry.at + LEASE <= now).count();
        let due: SmallVec<[Entry; 4]> = self.pending.drain(..due).collect();
        for entry in due {
            self.fail(rule, entry.at + LEASE, entry);
        }
        self.expire(rule, now);
    }

    fn expire(&mut self, rule: &Rule, now: u64) {
        if self.locked_until != 0 && self.locked_until <= now {
            self.locked_until = 0;
            self.failed.clear();
        }
        if self.locked_until == 0 && self.remembered_until <= now {
            self.forget_locks();
        }
        // All that have led to a lock stay until it ends: any of them may yet turn out to be none, and lift it.
        if !self.is_locked() {
            self.failed.retain(|entry| entry.at + rule.longest() > now);
        }
    }

    /// Counts a failure at `now`, and begins the lock if it reaches the limit.
    fn fail(&mut self, rule: &Rule, now: u64, entry: Entry) {
        self.expire(rule, now);
        self.failed.push(Entry { at: now, ..entry });
        if self.failed.len() < rule.attempts || self.is_locked() {
            return;
        }
        self.locked_until = now.saturating_add(rule.duration(self.locks));
        self.remembered_until = self.locked_until.saturating_add(rule.longest());
        let origins = self.failed.iter().map(|entry| entry.origin);
        let known = (self.locks > 0).then_some(self.origin);
        self.origin = known.into_iter().chain(origins).reduce(merged).unwrap_or(MIXED);
        self.locks = self.locks.saturating_add(1);
    }

    fn forget_locks(&mut self) {
        self.locks = 0;
        self.remembered_until = 0;
        self.origin = NO_ORIGIN;
    }

    /// Whether a lock is in force. Of a tally that was brought to now.
    pub(crate) const fn is_locked(&self) -> bool {
        self.locked_until != 0
    }

    /// Why another attempt is refused, if it is. Of a tally that was brought to `now`.
    pub(crate) fn refused(&self, rule: &Rule, now: u64) -> Option<Refused> {
        if self.is_locked() {
            let retry_after = Duration::from_millis(self.locked_until.saturating_sub(now).max(1));
            return Some(Refused::Locked { retry_after });
        }
        let oldest = self.pending.first()?;
        (self.remaining(rule) == 0).then(|| {
            let left = (oldest.at + LEASE).saturating_sub(now);
            Refused::UnderWay {
                retry_after: Duration::from_millis(left.clamp(1, BUSY_WAIT)),
            }
        })
    }

    fn remaining(&self, rule: &Rule) -> usize {
        if self.is_locked() {
            return 0;
        }
        rule.attempts.saturating_sub(self.failed.len() + self.pending.len())
    }

    /// Settles an attempt; `false` if that changes nothing. Brings the tally to `now`.
    pub(crate) fn settle(&mut self, rule: &Rule, now: u64, attempt: &Attempt<'_>, settle: Settle) -> bool {
        self.advance(rule, now);
        let pending = self.pending.iter().position(|entry| entry.id == attempt.id);
        if settle == Settle::Fail {
            // One that is not here has failed already, by its lease, or is no longer counted.
            let Some(place) = pending else { return false };
            let entry = self.pending.remove(place);
            self.fail(rule, now, entry);
            return true;
        }
        let before = (self.failed.len(), self.locks);
        if let Some(place) = pending {
            self.pending.remove(place);
        }
        let is_clear = settle == Settle::Clear;
        // Others of this origin that are under way are left to their own ends: they may be guesses.
        self.failed
            .retain(|entry| entry.id != attempt.id && !(is_clear && is_same(entry.origin, attempt.origin)));
        if self.is_locked() && self.failed.len() < rule.attempts {
            self.locked_until = 0;
            self.locks = self.locks.saturating_sub(1);
        }
        if self.locks == 0 || (is_clear && is_same(self.origin, attempt.origin)) {
            self.forget_locks();
        }
        let changed = pending.is_some() || before != (self.failed.len(), self.locks);
        self.expire(rule, now);
        changed
    }

    /// The answer to an attempt, after the decision.
    fn begun(&self, rule: &Rule, refused: Option<Refused>) -> Begun {
        Begun {
            remaining: u32::try_from(self.remaining(rule)).unwrap_or(u32::MAX),
            refused,
        }
    }

    pub(crate) fn status(&self, now: u64) -> LockoutStatus {
        let count = |entries: &[Entry]| u32::try_from(entries.len()).unwrap_or(u32::MAX);
        LockoutStatus {
            attempts: count(&self.failed),
            pending: count(&self.pending),
            locked_for: self
                .is_locked()
                .then(|| Duration::from_millis(self.locked_until.saturating_sub(now).max(1))),
            locks: self.locks,
        }
    }

    /// When nothing of the tally counts any more, at the latest.
    pub(crate) fn expires(&self, rule: &Rule) -> u64 {
        let longest = rule.longest();
        let failed = self.failed.last().map_or(0, |entry| entry.at + longest);
        // One that is never settled fails at the end of its lease, and may lead to a lock, which is remembered as long
        // again.
        let pending = self.pending.last().map_or(0, |entry| {
            let may_lock = self.failed.len() + self.pending.len() >= rule.attempts;
            entry.at + LEASE + if may_lock { 2 * longest } else { longest }
        });
        [self.locked_until, self.remembered_until, failed, pending]
            .into_iter()
            .max()
            .unwrap_or_default()
    }
}

/// The origin of two together.
fn merged(one: u64, other: u64) -> u64 {
    if is_same(one, other) { one } else { MIXED }
}

fn is_same(one: u64, other: u64) -> bool {
    one == other && one != NO_ORIGIN && one != MIXED
}

/// Begins each attempt or none. The tallies are brought to `now`, and the attempts are pending if none is refused.
pub(crate) fn begin(tallies: &mut [Tally], attempts: &[Attempt<'_>], now: u64) -> Vec<Begun> {
    let rules: SmallVec<[Rule; 2]> = attempts.iter().map(|attempt| Rule::of(attempt.lockout)).collect();
    for (tally, rule) in tallies.iter_mut().zip(&rules) {
        tally.advance(rule, now);
    }
    let refusals = tallies.iter().zip(&rules).map(|(tally, rule)| tally.refused(rule, now));
    let refusals: SmallVec<[Option<Refused>; 2]> = refusals.collect();
    let all = refusals.iter().all(Option::is_none);
    let each = tallies.iter_mut().zip(&rules).zip(attempts).zip(refusals);
    let begun = each.map(|(((tally, rule), attempt), refused)| {
        if all {
            tally.pending.push(Entry {
                at: now,
                id: attempt.id,
                origin: attempt.origin,
            });
        }
        tally.begun(rule, refused)
    });
    begun.collect()
}
