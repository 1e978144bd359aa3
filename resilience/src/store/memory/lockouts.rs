//! Tallies of many subjects in bounded memory.
//!
//! One lock for all of them: a login's password check takes thousands of times as long as anything here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use super::shard::Shard;
use crate::store::{
    Attempt, Begun, Lockout, LockoutStatus, Settle, Settlement,
    lockout::tally::{self, Rule, Tally},
};

pub(super) struct Lockouts {
    capacity: usize,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    tallies: Shard<Tally>,
    len: usize,
    /// What the subjects count against that found no room of their own, by lockout.
    shared: HashMap<String, Tally>,
}

/// Where an attempt is counted.
#[derive(Clone, Copy)]
enum Seat {
    Own(usize),
    New,
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
        let mut room = self.capacity.saturating_sub(books.len);
        let seats: SmallVec<[Seat; 2]> = attempts.iter().map(|attempt| books.seat(attempt, &mut room)).collect();
        let seated = attempts.iter().zip(&seats);
        let mut tallies: Vec<_> = seated.map(|(attempt, seat)| books.tally(attempt, *seat)).collect();
        let (all, begun) = tally::begin(&mut tallies, attempts, now);
        if all {
            for ((attempt, seat), tally) in attempts.iter().zip(seats).zip(tallies) {
                books.keep(attempt, seat, tally);
            }
        }
        begun
    }

    pub(super) fn settle(&self, settled: &[Settlement<'_>], now: u64) {
        let mut books = self.books(now);
        for Settlement { attempt, settle } in settled {
            let rule = Rule::of(attempt.lockout);
            let (seat, settle) = match books.tallies.find(&attempt.lockout.id, attempt.subject) {
                Some(slot) => (Seat::Own(slot), *settle),
                // Others count there too: one subject's success is none of theirs.
                None => (Seat::Shared, Settle::GiveBack),
            };
            let mut tally = books.tally(attempt, seat);
            if tally.settle(&rule, now, attempt.id, settle) {
                books.keep(attempt, seat, tally);
            }
        }
    }

    pub(super) fn status(&self, lockout: &Lockout, subject: &str, now: u64) -> LockoutStatus {
        let mut books = self.books(now);
        let Some(slot) = books.tallies.find(&lockout.id, subject) else {
            return LockoutStatus::default();
        };
        let mut tally = books.tallies.stored(slot);
        tally.advance(&Rule::of(lockout), now);
        tally.status(now)
    }

    pub(super) fn unlock(&self, lockout: &Lockout, subject: &str, now: u64) -> bool {
        let mut books = self.books(now);
        let Some(slot) = books.tallies.find(&lockout.id, subject) else {
            return false;
        };
        let mut tally = books.tallies.stored(slot);
        tally.advance(&Rule::of(lockout), now);
        // It expires now: the next call drops it.
        books.tallies.update(slot, Tally::default(), now);
        tally != Tally::default()
    }

    // No code panics between two changes that belong together, so that a poisoned lock's data is still whole.
    fn books(&self, now: u64) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        // Before any slot is looked up: reclaiming gives slots away.
        books.len -= books.tallies.reclaim(now);
        books
    }
}

impl Books {
    fn seat(&mut self, attempt: &Attempt<'_>, room: &mut usize) -> Seat {
        match self.tallies.find(&attempt.lockout.id, attempt.subject) {
            Some(slot) => Seat::Own(slot),
            None if *room > 0 => {
                *room -= 1;
                Seat::New
            }
            None => Seat::Shared,
        }
    }

    fn tally(&self, attempt: &Attempt<'_>, seat: Seat) -> Tally {
        match seat {
            Seat::Own(slot) => self.tallies.stored(slot),
            Seat::New => Tally::default(),
            Seat::Shared => self.shared.get(&attempt.lockout.id).cloned().unwrap_or_default(),
        }
    }

    fn keep(&mut self, attempt: &Attempt<'_>, seat: Seat, tally: Tally) {
        let (id, expires) = (&attempt.lockout.id, tally.expires(&Rule::of(attempt.lockout)));
        match seat {
            Seat::Own(slot) => self.tallies.update(slot, tally, expires),
            Seat::New => self.len += usize::from(self.tallies.insert(id, attempt.subject, tally, expires)),
            Seat::Shared => _ = self.shared.insert(id.clone(), tally),
        }
    }
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
        assert!(lockouts.books(0).len <= 10);
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
