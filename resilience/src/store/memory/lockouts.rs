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
        let (_, begun) = tally::begin(&mut tallies, attempts, now);
        for ((attempt, (key, seat)), tally) in attempts.iter().zip(seats).zip(tallies) {
            // Also where none was counted: what has run out is gone, and a clock that stepped back is put right once.
            books.keep(attempt.lockout, key, seat, tally, now);
        }
        begun
    }

    pub(super) fn settle(&self, settled: &[Settlement<'_>], now: u64) {
        let mut books = self.books(now);
        for Settlement { attempt, settle } in settled {
            let lockout = attempt.lockout;
            let key = key(lockout, attempt.subject);
            let (seat, mut tally, settle) = match books.tallies.get(&key) {
                Some((tally, _)) => (Seat::Own, tally.clone(), *settle),
                // Others count there too: one subject's success is none of theirs.
                None => match books.shared.get(&lockout.id) {
                    Some(tally) => (Seat::Shared, tally.clone(), Settle::GiveBack),
                    None => continue,
                },
            };
            if tally.settle(&Rule::of(lockout), now, attempt.id, settle) {
                books.keep(lockout, key, seat, tally, now);
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
        Attempt { lockout, subject, id }
    }

    fn begin(lockouts: &Lockouts, subject: &str, id: u64, now: u64) -> bool {
        let lockout = lockout();
        lockouts.begin(&[attempt(&lockout, subject, id)], now)[0].allowed
    }

    #[test]
    fn a_full_one_keeps_who_is_there_and_newcomers_share_a_tally() {
        let lockouts = Lockouts::new(1);
        assert!(begin(&lockouts, "ada", 1, NOON));
        assert!(begin(&lockouts, "eve", 2, NOON));
        assert!(begin(&lockouts, "mallory", 3, NOON));
        assert!(!begin(&lockouts, "grace", 4, NOON));
        assert!(begin(&lockouts, "ada", 5, NOON));
        assert!(!begin(&lockouts, "ada", 6, NOON));
    }

    #[test]
    fn a_success_clears_nothing_of_others_where_they_share_a_tally() {
        let (lockouts, lockout) = (Lockouts::new(0), lockout());
        assert!(begin(&lockouts, "eve", 1, NOON));
        assert!(begin(&lockouts, "ada", 2, NOON));
        let settled = Settlement {
            attempt: attempt(&lockout, "ada", 2),
            settle: Settle::Clear,
        };
        lockouts.settle(&[settled], NOON);
        assert!(begin(&lockouts, "eve", 3, NOON));
        assert!(!begin(&lockouts, "eve", 4, NOON));
    }

    #[test]
    fn what_has_run_out_makes_room() {
        let lockouts = Lockouts::new(10);
        for nth in 0..1_000 {
            let subject = nth.to_string();
            assert!(begin(&lockouts, &subject, nth, NOON + nth * MINUTE), "{nth}");
        }
        assert!(lockouts.books(0).tallies.len() <= 10);
    }

    #[test]
    fn what_is_given_back_or_cleared_holds_no_room() {
        let (lockouts, lockout) = (Lockouts::new(2), lockout());
        for id in 0..1_000 {
            let subject = id.to_string();
            assert!(begin(&lockouts, &subject, id, NOON));
            let settle = if id % 2 == 0 { Settle::Clear } else { Settle::GiveBack };
            let attempt = attempt(&lockout, &subject, id);
            lockouts.settle(&[Settlement { attempt, settle }], NOON);
        }
        let books = lockouts.books(NOON);
        assert_eq!((books.tallies.len(), books.expiry.len(), books.shared.len()), (0, 0, 0));
    }

    #[test]
    fn a_clock_that_stepped_back_is_put_right_at_the_first_refusal() {
        let lockouts = Lockouts::new(2);
        assert!(begin(&lockouts, "ada", 1, NOON) && begin(&lockouts, "ada", 2, NOON));
        let back = NOON - 60 * MINUTE;
        assert!(!begin(&lockouts, "ada", 3, back));
        assert!(begin(&lockouts, "ada", 4, back + MINUTE));
    }

    #[test]
    fn an_unlocked_subject_begins_anew() {
        let (lockouts, lockout) = (Lockouts::new(10), lockout());
        assert!(begin(&lockouts, "ada", 1, NOON) && begin(&lockouts, "ada", 2, NOON));
        assert_eq!(
            lockouts.status(&lockout, "ada", NOON).locked_for,
            Some(Duration::from_secs(60))
        );
        assert!(lockouts.unlock(&lockout, "ada", NOON));
        assert!(!lockouts.unlock(&lockout, "ada", NOON));
        assert_eq!(lockouts.status(&lockout, "ada", NOON), LockoutStatus::default());
        assert!(begin(&lockouts, "ada", 3, NOON));
    }
}
