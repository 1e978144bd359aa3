//! Tallies of many subjects in bounded memory.
//!
//! One lock for all of them: a login's password check takes thousands of times as long as anything here.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use crate::store::{
    Attempt, Begun, Lockout, LockoutStatus, Settle, Settlement,
    lockout::tally::{self, Rule, Tally},
};

/// Entries that one call looks at to give their memory back. More than one, so that reclaiming outruns adding.
const RECLAIMED_AT_ONCE: usize = 4;

pub(super) struct Lockouts {
    capacity: usize,
    books: Mutex<Books>,
}

/// A lockout's id and a subject.
type Key = Arc<(String, String)>;

#[derive(Default)]
struct Books {
    /// Tallies that say something, and when they no longer do. One that was cleared gives its room back at once: else
    /// whoever makes attempts that are given back could fill it.
    tallies: HashMap<Key, (Tally, u64)>,
    expiry: BTreeSet<(u64, Key)>,
    /// What the subjects count against that found no room of their own, by lockout.
    shared: HashMap<String, Tally>,
}

/// Where an attempt is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seat {
    Own,
    Shared,
}

impl Lockouts {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            books: Mutex::default(),
        }
    }

    /// Counts each attempt, or none, at `now` in milliseconds.
    pub(super) fn begin(&self, attempts: &[Attempt<'_>], now: u64) -> Vec<Begun> {
        let mut books = self.books(now);
        let mut room = self.capacity.saturating_sub(books.tallies.len());
        let seated = attempts.iter().map(|attempt| {
            let key = key(attempt.lockout, attempt.subject);
            match books.tallies.get(&key) {
                Some((tally, _)) => (key, Seat::Own, tally.clone()),
                None if room > 0 => {
                    room -= 1;
                    (key, Seat::Own, Tally::default())
                }
                None => {
                    let shared = books.shared.get(&attempt.lockout.id).cloned();
                    (key, Seat::Shared, shared.unwrap_or_default())
                }
            }
        });
        let (seats, mut tallies): (SmallVec<[_; 2]>, Vec<_>) =
            seated.map(|(key, seat, tally)| ((key, seat), tally)).unzip();
        let begun = tally::begin(&mut tallies, attempts, now);
        for ((attempt, (key, seat)), tally) in attempts.iter().zip(seats).zip(tallies) {
            // Also where none was counted: what has run out is gone, and a clock that stepped back is put right once.
            books.keep(attempt.lockout, key, seat, tally, now);
        }
        begun
    }

    pub(super) fn settle(&self, settled: &[Settlement<'_>], now: u64) {
        let mut books = self.books(now);
        for Settlement { attempt, settle } in settled {
            let (lockout, rule) = (attempt.lockout, Rule::of(attempt.lockout));
            let key = key(lockout, attempt.subject);
            let own = books.tallies.get(&key).map(|(tally, _)| tally.clone());
            if let Some(mut tally) = own
                && tally.settle(&rule, now, attempt, *settle)
            {
                books.keep(lockout, key, Seat::Own, tally, now);
                continue;
            }
            // Others count there too: one subject's success is none of theirs.
            let settle = match settle {
                Settle::Clear => Settle::GiveBack,
                settle => *settle,
            };
            let shared = books.shared.get(&lockout.id).cloned();
            if let Some(mut tally) = shared
                && tally.settle(&rule, now, attempt, settle)
            {
                books.keep(lockout, key, Seat::Shared, tally, now);
            }
        }
    }

    pub(super) fn status(&self, lockout: &Lockout, subject: &str, now: u64) -> LockoutStatus {
        let books = self.books(now);
        let Some((tally, _)) = books.tallies.get(&key(lockout, subject)) else {
            return LockoutStatus::default();
        };
        let mut tally = tally.clone();
        tally.advance(&Rule::of(lockout), now);
        tally.status(now)
    }

    pub(super) fn unlock(&self, lockout: &Lockout, subject: &str, now: u64) -> bool {
        let mut books = self.books(now);
        let key = key(lockout, subject);
        let Some((tally, _)) = books.tallies.get(&key) else {
            return false;
        };
        let mut tally = tally.clone();
        tally.advance(&Rule::of(lockout), now);
        books.keep(lockout, key, Seat::Own, Tally::default(), now);
        tally != Tally::default()
    }

    // No code panics between two changes that belong together, so that a poisoned lock's data is still whole.
    fn books(&self, now: u64) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..RECLAIMED_AT_ONCE {
            let Some((_, key)) = books.expiry.first().filter(|(expires, _)| *expires <= now).cloned() else {
                break;
            };
            books.remove(&key);
        }
        books
    }
}

impl Books {
    fn keep(&mut self, lockout: &Lockout, key: Key, seat: Seat, tally: Tally, now: u64) {
        if seat == Seat::Shared {
            self.shared.insert(lockout.id.clone(), tally);
            return;
        }
        self.remove(&key);
        let expires = tally.expires(&Rule::of(lockout));
        if expires > now {
            self.expiry.insert((expires, Arc::clone(&key)));
            self.tallies.insert(key, (tally, expires));
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some((_, expires)) = self.tallies.remove(key) {
            self.expiry.remove(&(expires, Arc::clone(key)));
        }
    }
}

fn key(lockout: &Lockout, subject: &str) -> Key {
    Arc::new((lockout.id.clone(), subject.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: u64 = 60_000;
    const NOON: u64 = 1_000 * MINUTE;

    fn lockout() -> Lockout {
        Lockout {
            id: "login".to_owned(),
            attempts: 2,
            durations: vec![Duration::from_secs(60)],
        }
    }

    fn attempt<'a>(lockout: &'a Lockout, subject: &'a str, id: u64) -> Attempt<'a> {
        Attempt {
            lockout,
            subject,
            id,
            origin: 1,
        }
    }

    /// Begins an attempt, and lets it fail if it is let in.
    fn guess(lockouts: &Lockouts, subject: &str, id: u64, now: u64) -> bool {
        let lockout = lockout();
        let attempt = attempt(&lockout, subject, id);
        let allowed = lockouts.begin(&[attempt], now)[0].is_allowed();
        if allowed {
            settle(lockouts, subject, id, Settle::Fail, now);
        }
        allowed
    }

    fn settle(lockouts: &Lockouts, subject: &str, id: u64, settle: Settle, now: u64) {
        let lockout = lockout();
        let attempt = attempt(&lockout, subject, id);
        lockouts.settle(&[Settlement { attempt, settle }], now);
    }

    #[test]
    fn a_full_one_keeps_who_is_there_and_newcomers_share_a_tally() {
        let lockouts = Lockouts::new(1);
        assert!(guess(&lockouts, "ada", 1, NOON));
        assert!(guess(&lockouts, "eve", 2, NOON));
        assert!(guess(&lockouts, "mallory", 3, NOON));
        assert!(!guess(&lockouts, "grace", 4, NOON));
        assert!(guess(&lockouts, "ada", 5, NOON));
        assert!(!guess(&lockouts, "ada", 6, NOON));
    }

    #[test]
    fn a_success_clears_nothing_of_others_where_they_share_a_tally() {
        let (lockouts, lockout) = (Lockouts::new(0), lockout());
        assert!(guess(&lockouts, "eve", 1, NOON));
        assert!(lockouts.begin(&[attempt(&lockout, "ada", 2)], NOON)[0].is_allowed());
        settle(&lockouts, "ada", 2, Settle::Clear, NOON);
        assert!(guess(&lockouts, "eve", 3, NOON));
        assert!(!guess(&lockouts, "eve", 4, NOON));
    }

    /// Its subject has got room of its own meanwhile.
    #[test]
    fn an_attempt_is_settled_in_the_tally_that_has_counted_it() {
        let (lockouts, lockout) = (Lockouts::new(1), lockout());
        assert!(lockouts.begin(&[attempt(&lockout, "ada", 1)], NOON)[0].is_allowed());
        assert!(lockouts.begin(&[attempt(&lockout, "eve", 2)], NOON)[0].is_allowed());
        settle(&lockouts, "ada", 1, Settle::GiveBack, NOON);
        assert!(guess(&lockouts, "eve", 3, NOON));
        settle(&lockouts, "eve", 2, Settle::GiveBack, NOON);
        assert_eq!(lockouts.books(NOON).shared["login"], Tally::default());
    }

    #[test]
    fn what_has_run_out_makes_room() {
        let lockouts = Lockouts::new(10);
        for nth in 0..1_000 {
            let subject = nth.to_string();
            assert!(guess(&lockouts, &subject, nth, NOON + nth * MINUTE), "{nth}");
        }
        assert!(lockouts.books(0).tallies.len() <= 10);
    }

    #[test]
    fn what_is_given_back_or_cleared_holds_no_room() {
        let (lockouts, lockout) = (Lockouts::new(2), lockout());
        for id in 0..1_000 {
            let subject = id.to_string();
            assert!(lockouts.begin(&[attempt(&lockout, &subject, id)], NOON)[0].is_allowed());
            let how = if id % 2 == 0 { Settle::Clear } else { Settle::GiveBack };
            settle(&lockouts, &subject, id, how, NOON);
        }
        let books = lockouts.books(NOON);
        assert_eq!((books.tallies.len(), books.expiry.len(), books.shared.len()), (0, 0, 0));
    }

    #[test]
    fn a_clock_that_stepped_back_is_put_right_at_the_first_refusal() {
        let lockouts = Lockouts::new(2);
        assert!(guess(&lockouts, "ada", 1, NOON) && guess(&lockouts, "ada", 2, NOON));
        let back = NOON - 60 * MINUTE;
        assert!(!guess(&lockouts, "ada", 3, back));
        assert!(guess(&lockouts, "ada", 4, back + MINUTE));
    }

    #[test]
    fn an_unlocked_subject_begins_anew() {
        let (lockouts, lockout) = (Lockouts::new(10), lockout());
        assert!(guess(&lockouts, "ada", 1, NOON) && guess(&lockouts, "ada", 2, NOON));
        assert_eq!(
            lockouts.status(&lockout, "ada", NOON).locked_for,
            Some(Duration::from_secs(60))
        );
        assert!(lockouts.unlock(&lockout, "ada", NOON));
        assert!(!lockouts.unlock(&lockout, "ada", NOON));
        assert_eq!(lockouts.status(&lockout, "ada", NOON), LockoutStatus::default());
        assert!(guess(&lockouts, "ada", 3, NOON));
    }
}
