//! Locks that the store has reported, remembered for a moment: a flood of attempts at a locked subject costs it little.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use quick_cache::{Equivalent, sync::Cache};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::store::{Attempt, Begun, Refused};

/// The longest time for which an answer is remembered: an operator may unlock the subject from another process.
const MEMORY: Duration = Duration::from_secs(1);

/// After that, one request asks the store again. Others of the flood are refused from memory while it does, for at most
/// this long.
const RENEWAL: Duration = Duration::from_millis(250);

/// Counters of forgotten subjects. More of them would only make it rarer that an answer is not remembered.
const SHARDS: usize = 64;

/// Answers of the store to attempts that a lock has refused.
///
/// Lockouts that are asked together decide together, so the answers of all of them are remembered, also of those that are
/// not locked: the longest wait decides, as it does in the store.
pub(crate) struct Locked {
    /// `None` remembers nothing.
    answers: Option<Cache<Key, Known>>,
    hasher: RandomState,
    /// How often a subject of each shard was forgotten. An answer that was on its way meanwhile is not learned.
    forgotten: [AtomicU64; SHARDS],
    epoch: Instant,
    /// When the last memory of all ends, in nanoseconds since the epoch. While it is past there is nothing to look up.
    horizon: AtomicU64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    lockout: String,
    subject: String,
}

/// A [`Key`] that is looked up. Its fields come in the same order, so that it has the same hash.
#[derive(Clone, Copy, Hash)]
struct Asked<'a> {
    lockout: &'a str,
    subject: &'a str,
}

impl Equivalent<Key> for Asked<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.subject == key.subject && self.lockout == key.lockout
    }
}

impl<'a> From<&Attempt<'a>> for Asked<'a> {
    fn from(attempt: &Attempt<'a>) -> Self {
        Self {
            lockout: &attempt.lockout.id,
            subject: attempt.subject,
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    /// When the lock ends; `None` without one.
    locked_until: Option<Instant>,
    remaining: u32,
    /// When the store is to be asked again.
    until: Instant,
    /// Whether a request does so.
    is_renewed: Arc<AtomicBool>,
}

impl Known {
    fn begun(&self, now: Instant) -> Begun {
        Begun {
            remaining: self.remaining,
            refused: self.locked_until.map(|until| Refused::Locked {
                retry_after: until.saturating_duration_since(now),
            }),
        }
    }

    /// Whether the answer may be given at `now`: until the store is to be asked again, and by all but one request while it
    /// is asked.
    fn holds(&self, now: Instant) -> bool {
        if now < self.until {
            return true;
        }
        let still = now < self.until + RENEWAL && self.locked_until.is_none_or(|until| now < until);
        still && self.is_renewed.swap(true, Ordering::Relaxed)
    }
}

/// The state of the memory before the store was asked.
#[derive(Debug)]
pub(crate) struct Before {
    at: Instant,
    forgotten: SmallVec<[u64; 2]>,
}

impl Locked {
    /// Remembers up to `capacity` answers.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            answers: (capacity > 0).then(|| Cache::new(capacity)),
            hasher: RandomState::new(),
            forgotten: [const { AtomicU64::new(0) }; SHARDS],
            epoch: Instant::now(),
            horizon: AtomicU64::new(0),
        }
    }

    /// Whether nothing can be known at `now`.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.nanos(now) >= self.horizon.load(Ordering::Relaxed)
    }

    /// The store's answers to these attempts, if they are known and a lock is among them. Otherwise the store has to be
    /// asked.
    pub(crate) fn recall(&self, attempts: &[Attempt<'_>], now: Instant) -> Result<Vec<Begun>, Before> {
        let known = || {
            let answers = self.answers.as_ref()?;
            if self.is_idle(now) {
                return None;
            }
            let known = attempts.iter().map(|attempt| answers.get(&Asked::from(attempt)));
            let known: SmallVec<[Known; 2]> = known.collect::<Option<_>>()?;
            let is_locked = |known: &Known| known.locked_until.is_some();
            (known.iter().any(is_locked) && known.iter().all(|known| known.holds(now)))
                .then(|| known.iter().map(|known| known.begun(now)).collect())
        };
        known().ok_or_else(|| self.before(attempts, now))
    }

    /// The state of the memory at `now`, before the store is asked about these attempts.
    pub(crate) fn before(&self, attempts: &[Attempt<'_>], now: Instant) -> Before {
        Before {
            at: now,
            forgotten: attempts
                .iter()
                .map(|attempt| self.shard(Asked::from(attempt)).load(Ordering::Acquire))
                .collect(),
        }
    }

    /// Learns the store's answers, if a lock is among them. `before` is the state before it was asked.
    ///
    /// The memory counts from then, which is before the store has looked, and the wait from now, which is after: the answer is
    /// forgotten before the lock ends, and a retry after the wait finds it ended.
    pub(crate) fn learn(&self, attempts: &[Attempt<'_>], before: &Before, begun: &[Begun]) {
        let Some(answers) = &self.answers else { return };
        let is_lock = |begun: &Begun| matches!(begun.refused, Some(Refused::Locked { .. }));
        if !begun.iter().any(is_lock) {
            if !self.is_idle(before.at) {
                // A lock that was remembered has gone: another process has lifted it.
                attempts
                    .iter()
                    .for_each(|attempt| _ = answers.remove(&Asked::from(attempt)));
            }
            return;
        }
        let now = Instant::now();
        for ((attempt, begun), forgotten) in attempts.iter().zip(begun).zip(&before.forgotten) {
            let (locked_until, memory) = match begun.refused {
                Some(Refused::Locked { retry_after }) => {
                    let Some(until) = now.checked_add(retry_after) else {
                        continue;
                    };
                    (Some(until), retry_after.min(MEMORY))
                }
                // It passes at any moment.
                Some(Refused::UnderWay { .. }) => continue,
                None => (None, MEMORY),
            };
            let known = Known {
                locked_until,
                remaining: begun.remaining,
                until: before.at + memory,
                is_renewed: Arc::default(),
            };
            let horizon = self.nanos(known.until + RENEWAL);
            let asked = Asked::from(attempt);
            let key = Key {
                lockout: asked.lockout.to_owned(),
                subject: asked.subject.to_owned(),
            };
            answers.insert(key, known);
            // After it was inserted: `forget` counts first, and removes then.
            if self.shard(asked).load(Ordering::Acquire) == *forgotten {
                self.horizon.fetch_max(horizon, Ordering::Relaxed);
            } else {
                answers.remove(&asked);
            }
        }
    }

    /// Forgets a subject: this process has settled an attempt of it, or has unlocked it.
    pub(crate) fn forget(&self, lockout: &str, subject: &str) {
        let asked = Asked { lockout, subject };
        self.shard(asked).fetch_add(1, Ordering::AcqRel);
        if let Some(answers) = &self.answers {
            answers.remove(&asked);
        }
    }

    fn shard(&self, asked: Asked<'_>) -> &AtomicU64 {
        let hash = self.hasher.hash_one(asked);
        &self.forgotten[(hash % SHARDS as u64) as usize]
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked")
            .field("len", &self.answers.as_ref().map_or(0, Cache::len))
            .finish_non_exhaustive()
    }
}
