//! Quotas of many clients in bounded memory.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;

use crate::store::{
    Take, Taken,
    account::{Account, Rule, Stored},
};

use super::shard::Shard;

/// Takes from several quotas at once, all or none.
///
/// Locks are taken in one order everywhere: shards by their index, then the shared counts. A shard out of that order is
/// only ever tried.
pub(super) struct Limiter {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    capacity: usize,
    /// Entries in all shards, and the room that is promised to new ones.
    len: AtomicUsize,
    /// What the clients count against that found no room of their own, by quota.
    shared: Mutex<HashMap<String, Stored>>,
}

impl Limiter {
    pub(super) fn new(capacity: usize) -> Self {
        // A shard for less than a hundred entries would cost more than it spares.
        let shards = (capacity / 128).clamp(1, 16).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            capacity,
            len: AtomicUsize::new(0),
            shared: Mutex::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes from each, or from none, at `now` in milliseconds.
    pub(super) fn take(&self, takes: &[Take<'_>], now: u64) -> Vec<Taken> {
        let mut books = Books::open(self, takes, now);
        let mut claims: SmallVec<[Claim; 2]> = takes.iter().map(|take| books.claim(take)).collect();
        if claims.iter().all(|claim| claim.fits) {
            claims.iter_mut().for_each(|claim| claim.account.charge());
            for (nth, take) in takes.iter().enumerate() {
                // Of one client and quota that stand twice among the takes, the last counts.
                if !claims[nth + 1..]
                    .iter()
                    .any(|later| later.is_on_the_entry_of(&claims[nth]))
                {
                    books.settle(take, &claims[nth]);
                }
            }
        } else {
            let unused = claims.iter().filter(|claim| matches!(claim.seat, Seat::New)).count();
            self.len.fetch_sub(unused, Ordering::Relaxed);
        }
        claims.iter().map(|claim| claim.account.taken(claim.fits)).collect()
    }

    fn shard_of(&self, client: &str) -> usize {
        // The low half: a shard's own table has another hasher, so that any bits would do.
        self.hasher.hash_one(client) as usize & (self.shards.len() - 1)
    }

    /// Promises room to a new entry. While there is none, whatever has expired anywhere gives way, a few entries a call.
    fn reserve(&self, now: u64) -> bool {
        let promise = || {
            let more = |len: usize| (len < self.capacity).then_some(len + 1);
            self.len
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
                .is_ok()
        };
        promise() || {
            for shard in &self.shards {
                // A busy shard, or one that this very call holds, sees to its own.
                let freed = match shard.try_lock() {
                    Ok(mut shard) => shard.reclaim(now),
                    Err(TryLockError::Poisoned(shard)) => shard.into_inner().reclaim(now),
                    Err(TryLockError::WouldBlock) => 0,
                };
                self.len.fetch_sub(freed, Ordering::Relaxed);
            }
            promise()
        }
    }
}

/// The shards that one call needs, locked.
struct Books<'a> {
    limiter: &'a Limiter,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>,
    shared: Option<MutexGuard<'a, HashMap<String, Stored>>>,
    now: u64,
}

/// One take, looked at.
struct Claim {
    account: Account,
    /// Its place among the locked shards.
    shard: usize,
    seat: Seat,
    fits: bool,
}

impl Claim {
    fn is_on_the_entry_of(&self, other: &Self) -> bool {
        matches!((&self.seat, &other.seat), (Seat::Own(one), Seat::Own(two)) if one == two && self.shard == other.shard)
    }
}

/// Where a take is counted.
enum Seat {
    Own(usize),
    New,
    Shared,
}

impl<'a> Books<'a> {
    fn open(limiter: &'a Limiter, takes: &[Take<'_>], now: u64) -> Self {
        let mut indices: SmallVec<[usize; 4]> = takes.iter().map(|take| limiter.shard_of(take.client)).collect();
        indices.sort_unstable();
        indices.dedup();
        let mut shards = SmallVec::with_capacity(indices.len());
        for index in indices {
            let mut shard = lock(&limiter.shards[index]);
            // Before any slot is looked up: reclaiming gives slots away.
            let freed = shard.reclaim(now);
            limiter.len.fetch_sub(freed, Ordering::Relaxed);
            shards.push((index, shard));
        }
        Self {
            limiter,
            shards,
            shared: None,
            now,
        }
    }

    fn claim(&mut self, take: &Take<'_>) -> Claim {
        let place = self.place_of(take.client);
        let shard = &mut self.shards[place].1;
        let (rule, now) = (Rule::of(take), self.now);
        let (seat, account) = match shard.find(take) {
            Some(slot) => {
                let stored = shard.stored(slot).unwrap_or(&Stored::Nothing);
                (Seat::Own(slot), Account::open(rule, stored, now))
            }
            None if self.limiter.reserve(now) => (Seat::New, Account::open(rule, &Stored::Nothing, now)),
            None => {
                let stored = self.shared().get(&take.quota.id).unwrap_or(&Stored::Nothing);
                (Seat::Shared, Account::open(rule, stored, now))
            }
        };
        Claim {
            account,
            shard: place,
            seat,
            fits: account.fits(),
        }
    }

    fn settle(&mut self, take: &Take<'_>, claim: &Claim) {
        let (account, now) = (&claim.account, self.now);
        let expires = now + account.lifetime();
        let shard = &mut self.shards[claim.shard].1;
        match claim.seat {
            Seat::Own(slot) => shard.update(slot, expires, |stored| account.write(stored, now)),
            Seat::New => {
                let mut stored = Stored::Nothing;
                account.write(&mut stored, now);
                if !shard.insert(take, stored, expires) {
                    // The same client and quota stood twice among the takes.
                    self.limiter.len.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Seat::Shared => {
                let stored = self.shared().entry(take.quota.id.clone()).or_default();
                account.write(stored, now);
            }
        }
    }

    fn place_of(&self, client: &str) -> usize {
        let index = self.limiter.shard_of(client);
        let place = self.shards.iter().position(|(locked, _)| *locked == index);
        place.expect("every take's shard is locked when the books are opened")
    }

    fn shared(&mut self) -> &mut HashMap<String, Stored> {
        self.shared.get_or_insert_with(|| lock(&self.limiter.shared))
    }
}

// No code panics between two changes that belong together, so that a poisoned lock's data is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{policy::Algorithm, store::Quota};

    const SECOND: u64 = 1_000;
    const NOON: u64 = 1_000 * SECOND;

    fn quota(id: &str, limit: u32) -> Quota {
        Quota {
            id: id.to_owned(),
            limit,
            window: Duration::from_secs(10),
            algorithm: Algorithm::FixedWindow,
            burst: limit,
        }
    }

    fn take(limiter: &Limiter, quota: &Quota, client: &str, now: u64) -> bool {
        limiter.take(&[Take { quota, client, cost: 1 }], now)[0].allowed
    }

    #[test]
    fn a_full_limiter_keeps_live_entries_and_shares_one_count_among_newcomers() {
        let limiter = Limiter::new(300);
        let quota = quota("q", 2);
        for client in 0..300 {
            assert!(take(&limiter, &quota, &client.to_string(), NOON));
        }
        assert_eq!(limiter.len(), 300);
        // Two newcomers use the shared count up for all others.
        assert!(take(&limiter, &quota, "new 1", NOON));
        assert!(take(&limiter, &quota, "new 2", NOON));
        assert!(!take(&limiter, &quota, "new 3", NOON));
        assert!(!take(&limiter, &quota, "new 1", NOON));
        // Those who were there before have what was left to them, and no more.
        for client in 0..300 {
            assert!(take(&limiter, &quota, &client.to_string(), NOON));
            assert!(!take(&limiter, &quota, &client.to_string(), NOON));
        }
        assert_eq!(limiter.len(), 300);
    }

    #[test]
    fn each_quota_has_a_shared_count_of_its_own() {
        let limiter = Limiter::new(0);
        let (one, two) = (quota("one", 1), quota("two", 1));
        assert!(take(&limiter, &one, "a", NOON));
        assert!(!take(&limiter, &one, "b", NOON));
        assert!(take(&limiter, &two, "b", NOON));
        assert_eq!(limiter.len(), 0);
    }

    #[test]
    fn expired_entries_give_way_wherever_they_are() {
        let limiter = Limiter::new(4_096);
        let quota = quota("q", 1);
        for client in 0..4_096 {
            assert!(take(&limiter, &quota, &client.to_string(), NOON));
        }
        // The window is over: newcomers find room, each in a shard of its own.
        let later = NOON + 10 * SECOND;
        for client in 5_000..9_096 {
            assert!(take(&limiter, &quota, &client.to_string(), later), "{client}");
        }
        assert!(limiter.len() <= 4_096);
    }

    #[test]
    fn an_entry_in_use_outlives_its_first_expiry() {
        let limiter = Limiter::new(1);
        let quota = quota("q", 2);
        assert!(take(&limiter, &quota, "a", NOON));
        let next = NOON + 10 * SECOND;
        assert!(take(&limiter, &quota, "a", next));
        // Its first expiry has come up by now, and it has not lost its count.
        assert!(take(&limiter, &quota, "b", next + SECOND));
        assert!(take(&limiter, &quota, "a", next + SECOND));
        assert!(!take(&limiter, &quota, "a", next + SECOND));
    }

    #[test]
    fn a_refused_newcomer_takes_no_room() {
        let limiter = Limiter::new(2);
        let (tight, wide) = (quota("tight", 1), quota("wide", 9));
        assert!(take(&limiter, &tight, "a", NOON));
        let both = [
            Take {
                quota: &tight,
                client: "a",
                cost: 1,
            },
            Take {
                quota: &wide,
                client: "b",
                cost: 1,
            },
        ];
        let taken = limiter.take(&both, NOON);
        assert!(!taken[0].allowed && taken[1].allowed);
        assert_eq!(taken[1].remaining, 9);
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn the_same_bucket_twice_in_one_call_leaves_one_entry() {
        let limiter = Limiter::new(8);
        let quota = quota("q", 5);
        let twice = [Take {
            quota: &quota,
            client: "a",
            cost: 1,
        }; 2];
        limiter.take(&twice, NOON);
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn the_same_log_twice_in_one_call_counts_once_as_in_redis() {
        let limiter = Limiter::new(8);
        let algorithm = Algorithm::SlidingWindow;
        let quota = Quota {
            algorithm,
            ..quota("q", 5)
        };
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        limiter.take(&[take; 2], NOON);
        limiter.take(&[take; 2], NOON);
        assert_eq!(limiter.take(&[take], NOON)[0].remaining, 2);
    }

    #[test]
    fn threads_that_take_over_several_shards_admit_exactly_the_limit() {
        let limiter = Limiter::new(100_000);
        let (one, two) = (quota("one", 50), quota("two", 1_000_000));
        let admitted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (limiter, one, two, admitted) = (&limiter, &one, &two, &admitted);
                scope.spawn(move || {
                    for nth in 0..100 {
                        let client = format!("{thread}-{nth}");
                        let mut takes = vec![
                            Take {
                                quota: one,
                                client: "all",
                                cost: 1,
                            },
                            Take {
                                quota: two,
                                client: &client,
                                cost: 1,
                            },
                        ];
                        if nth % 2 == 0 {
                            takes.reverse();
                        }
                        if limiter.take(&takes, NOON).iter().all(|taken| taken.allowed) {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 50);
        assert_eq!(limiter.len(), 51);
    }
}
