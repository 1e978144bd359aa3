//! Tallies of attempts, and the locks that they lead to.

pub(crate) mod tally;

use std::{cmp::Ordering, time::Duration};

/// A lockout as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// Tells this lockout from all others. Comes from code, never from a client.
    pub id: String,
    /// Failures that lead to a lock; from 1 to 1,000.
    pub attempts: u32,
    /// How long the first lock lasts, the second, and so on; the last one repeats, and is how long failures count. Not
    /// empty, rising, each from 1 ms to 366 days.
    pub durations: Vec<Duration>,
}

/// One attempt against one tally.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Which lockout.
    pub lockout: &'a Lockout,
    /// Whose tally: bounded and unambiguous already (see [`ClientKey`](crate::client::ClientKey)).
    pub subject: &'a str,
    /// Tells the attempt from the others of its tally: random.
    pub id: u64,
    /// Where the attempt comes from: a hash that is equal on all instances. A success removes failures of its own origin
    /// only. `0` and [`u64::MAX`] are no origin, and match nothing.
    pub origin: u64,
}

/// The answer of one tally to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Attempts that may still begin before others are refused.
    pub remaining: u32,
    /// Why this tally refuses the attempt; `None` if it does not. The attempt may go on only if none of the tallies
    /// refuses it.
    pub refused: Option<Refused>,
}

/// Why a tally refuses an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too many attempts have failed.
    Locked {
        /// How long the lock lasts: rounded up to the millisecond, never zero.
        retry_after: Duration,
    },
    /// Failures and attempts that are still under way make up the limit: another could exceed it.
    UnderWay {
        /// When to try again: from 1 ms to 1 s, and not after the lease of the oldest attempt has ended.
        retry_after: Duration,
    },
}

/// The end of an attempt, told to the store.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// Which attempt.
    pub attempt: Attempt<'a>,
    /// How it ended.
    pub settle: Settle,
}

/// How an attempt is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It has succeeded: the attempt is removed, with all failures of its origin. A lock ends if fewer failures than the
    /// limit are left. The history of locks is forgotten if all of them came from this origin.
    Clear,
    /// It was no attempt: this one is removed. A lock ends if fewer failures than the limit are left.
    GiveBack,
    /// It has failed. The lock begins when the failures reach the limit.
    Fail,
}

/// The state of a tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockoutStatus {
    /// Failures that count at present.
    pub attempts: u32,
    /// Attempts that are under way: begun, and not settled.
    pub pending: u32,
    /// How long the tally stays locked; `None` if it is not.
    pub locked_for: Option<Duration>,
    /// Locks that are remembered, the present one included: which duration is next.
    pub locks: u32,
}

impl Begun {
    /// Whether this tally lets the attempt go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.refused.is_none()
    }
}

impl Refused {
    /// When to try again; never zero.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        match self {
            Self::Locked { retry_after } | Self::UnderWay { retry_after } => *retry_after,
        }
    }

    /// The refusal that decides: the one with the longest wait, and of equal waits the lock.
    pub(crate) fn longest(refusals: impl IntoIterator<Item = Self>) -> Option<Self> {
        refusals.into_iter().max_by(Self::by_wait)
    }

    fn by_wait(&self, other: &Self) -> Ordering {
        let is_lock = |refused: &Self| matches!(refused, Self::Locked { .. });
        let wait = self.retry_after().cmp(&other.retry_after());
        wait.then_with(|| is_lock(self).cmp(&is_lock(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_decides_and_of_equal_waits_the_lock() {
        let wait = Duration::from_secs;
        let locked = |seconds| Refused::Locked {
            retry_after: wait(seconds),
        };
        let under_way = |seconds| Refused::UnderWay {
            retry_after: wait(seconds),
        };
        for (refusals, longest) in [
            (vec![], None),
            (vec![locked(2), locked(3)], Some(locked(3))),
            (vec![under_way(1), locked(9)], Some(locked(9))),
            (vec![locked(1), under_way(2)], Some(under_way(2))),
            (vec![locked(1), under_way(1)], Some(locked(1))),
        ] {
            assert_eq!(Refused::longest(refusals), longest);
        }
    }
}
