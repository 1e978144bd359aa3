//! Which commands wait to be sent, and which is next: pure transitions, no lock, no clock.
//!
//! Kinds of questions take turns, so that a flood of one kind delays the next question of another by one place at most.
//! Within a kind, callers that are known to be good come first, then unknown ones, then those that were refused lately;
//! among equals the first comes first.

use std::collections::BTreeMap;

use crate::{standing::Standing, store_breaker::Operation};

/// The order is the order of service within a kind.
type Place = (Standing, u64);

#[derive(Debug)]
pub(super) struct Line<W> {
    /// By [`Operation`].
    kinds: [BTreeMap<Place, W>; KINDS],
    /// The kind that was served last.
    last: usize,
    arrivals: u64,
    /// Of each kind, at most.
    capacity: usize,
}

const KINDS: usize = Operation::ALL.len();

impl<W> Line<W> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            kinds: std::array::from_fn(|_| BTreeMap::new()),
            last: KINDS - 1,
            arrivals: 0,
            capacity,
        }
    }

    /// Adds a waiter. A full line hands out the one that has no room: the latest of the worst callers.
    pub(super) fn push(&mut self, operation: Operation, standing: Standing, waiter: W) -> Option<W> {
        let kind = &mut self.kinds[operation as usize];
        let displaced = if kind.len() < self.capacity {
            None
        } else {
            match kind.last_entry().filter(|worst| worst.key().0 > standing) {
                Some(worst) => Some(worst.remove()),
                None => return Some(waiter),
            }
        };
        self.arrivals += 1;
        kind.insert((standing, self.arrivals), waiter);
        displaced
    }

    /// Takes the next one out.
    pub(super) fn next(&mut self) -> Option<W> {
        for turn in 1..=KINDS {
            let kind = (self.last + turn) % KINDS;
            if let Some((_, waiter)) = self.kinds[kind].pop_first() {
                self.last = kind;
                return Some(waiter);
            }
        }
        None
    }

    /// Takes out those for which it is too late, of each kind and standing from the first on, until one has time left.
    pub(super) fn expired(&mut self, is_late: impl Fn(&W) -> bool) -> Vec<W> {
        let mut expired = Vec::new();
        for kind in &mut self.kinds {
            for standing in [Standing::Good, Standing::Unknown, Standing::Refused] {
                let of_standing = (standing, 0)..=(standing, u64::MAX);
                while let Some((&place, _)) = kind
                    .range(of_standing.clone())
                    .next()
                    .filter(|(_, waiter)| is_late(waiter))
                {
                    expired.extend(kind.remove(&place));
                }
            }
        }
        expired
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.iter().all(BTreeMap::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn push(line: &mut Line<u32>, operation: Operation, standing: Standing, waiter: u32) -> bool {
        line.push(operation, standing, waiter).is_none()
    }

    #[test]
    fn kinds_take_turns() {
        let mut line = Line::new(10);
        for waiter in 0..4 {
            assert!(push(&mut line, Operation::Lockout, Standing::Unknown, waiter));
        }
        assert!(push(&mut line, Operation::Auth, Standing::Unknown, 10));
        assert!(push(&mut line, Operation::Flag, Standing::Unknown, 20));
        let order: Vec<_> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(order, [10, 20, 0, 1, 2, 3]);
        assert!(push(&mut line, Operation::Auth, Standing::Unknown, 10));
        assert!(push(&mut line, Operation::Lockout, Standing::Unknown, 4));
        assert_eq!(line.next(), Some(10), "a login was served last");
    }

    #[test]
    fn known_good_callers_come_first_and_refused_ones_last() {
        let mut line = Line::new(10);
        for (waiter, standing) in [
            (0, Standing::Refused),
            (1, Standing::Unknown),
            (2, Standing::Good),
            (3, Standing::Unknown),
            (4, Standing::Good),
        ] {
            assert!(push(&mut line, Operation::Auth, standing, waiter));
        }
        let order: Vec<_> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(order, [2, 4, 1, 3, 0]);
    }

    #[test]
    fn a_full_line_lets_only_better_callers_in() {
        let mut line = Line::new(2);
        assert!(push(&mut line, Operation::Auth, Standing::Unknown, 0));
        assert!(push(&mut line, Operation::Auth, Standing::Refused, 1));
        assert!(!push(&mut line, Operation::Auth, Standing::Refused, 2));
        assert_eq!(line.push(Operation::Auth, Standing::Unknown, 3), Some(1));
        assert_eq!(line.push(Operation::Auth, Standing::Unknown, 4), Some(4));
        assert_eq!(line.push(Operation::Auth, Standing::Good, 5), Some(3));
        assert!(
            push(&mut line, Operation::Flag, Standing::Refused, 6),
            "each kind has room of its own"
        );
    }

    #[test]
    fn waiters_that_are_late_leave_the_line() {
        let mut line = Line::new(8);
        for (waiter, standing) in [
            (1, Standing::Unknown),
            (2, Standing::Refused),
            (9, Standing::Unknown),
            (3, Standing::Unknown),
        ] {
            assert!(push(&mut line, Operation::Auth, standing, waiter));
        }
        assert_eq!(line.expired(|waiter| *waiter < 5), [1, 2]);
        assert!(!line.is_empty());
        assert_eq!(line.next(), Some(9));
        assert_eq!(line.next(), Some(3));
        assert!(line.is_empty());
    }

    proptest! {
        /// However the line came about, a question of another kind is served within as many turns as there are kinds.
        #[test]
        fn no_kind_waits_for_another_one(
            flood in 1_usize..200,
            flooding in 0_usize..KINDS,
            other in 0_usize..KINDS,
            served in 0_usize..10,
        ) {
            let mut line = Line::new(1_000);
            for waiter in 0..flood {
                assert_eq!(line.push(Operation::ALL[flooding], Standing::Good, waiter), None);
            }
            for _ in 0..served {
                line.next();
            }
            prop_assume!(other != flooding);
            assert_eq!(line.push(Operation::ALL[other], Standing::Refused, usize::MAX), None);
            let turns = (1..=KINDS).find(|_| line.next() == Some(usize::MAX));
            prop_assert!(turns.is_some());
        }
    }
}
