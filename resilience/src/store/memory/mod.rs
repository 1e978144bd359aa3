//! A store inside the process.

mod board;
mod limiter;
mod lockouts;
mod shard;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures_util::{FutureExt, future};
use tokio::time::Instant;

use crate::clock::Clock;

use self::{board::Boards, limiter::Limiter, lockouts::Lockouts};
use super::{
    Attempt, Begun, BreakerBoard, Lockout, LockoutStatus, Probe, Settlement, Store, StoreAdmin, StoreFuture, Take,
    Taken, Timing, check_api_key, layout::sha256,
};

/// A store that is embedded in the process: nothing to run, nothing shared, nothing kept.
///
/// It counts for one process only: three instances of a service let three times the limit pass. A clone is another
/// handle to the same store. Every operation is ready at its first poll.
///
/// Its memory is bounded: at most `capacity` clients' counts are kept (about 250 bytes each, and up to 1 KiB more for the
/// times of an exact sliding window of 100), and as many tallies of lockouts; none that still matters is ever dropped to make room. While it is full, the clients that come on top share
/// one count per quota, and one tally per lockout.
///
/// ```
/// use resilience::store::MemoryStore;
///
/// let store = MemoryStore::new()
///     .with_api_key("letmein", "user-42")
///     .with_flag("checkout", false);
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    limiter: Limiter,
    lockouts: Lockouts,
    users: RwLock<HashMap<[u8; 32], String>>,
    flags: RwLock<HashMap<String, bool>>,
    limits: RwLock<HashMap<String, String>>,
    boards: Boards,
}

/// Settings of a [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Clock,
}

impl MemoryStore {
    /// How many clients' counts a store keeps unless told otherwise.
    pub const DEFAULT_CAPACITY: usize = 100_000;

    /// An empty store for 100,000 clients' counts.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to begin with.
    #[must_use]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: Self::DEFAULT_CAPACITY,
            clock: Clock::system(),
        }
    }

    /// Lets `api_key` in as `user`. Only its SHA-256 is kept.
    #[must_use]
    pub fn with_api_key(self, api_key: &str, user: impl Into<String>) -> Self {
        write(&self.inner.users).insert(sha256(api_key), user.into());
        self
    }

    /// Turns a flag on or off.
    #[must_use]
    pub fn with_flag(self, name: impl Into<String>, on: bool) -> Self {
        write(&self.inner.flags).insert(name.into(), on);
        self
    }

    /// [`take`](Store::take), for a caller that has no future to poll.
    pub(crate) fn take_now(&self, takes: &[Take<'_>]) -> Vec<Taken> {
        self.inner.limiter.take(takes, self.now())
    }

    /// [`begin_attempts`](Store::begin_attempts), for a caller that has no future to poll.
    pub(crate) fn begin_attempts_now(&self, attempts: &[Attempt<'_>]) -> Vec<Begun> {
        self.inner.lockouts.begin(attempts, self.now())
    }

    /// [`settle_attempts`](Store::settle_attempts), for a caller that has no future to poll.
    pub(crate) fn settle_attempts_now(&self, settled: &[Settlement<'_>]) {
        self.inner.lockouts.settle(settled, self.now());
    }

    /// [`unlock`](Store::unlock), for a caller that has no future to poll.
    pub(crate) fn unlock_now(&self, lockout: &Lockout, subject: &str) -> bool {
        self.inner.lockouts.unlock(lockout, subject, self.now())
    }

    /// Milliseconds of its clock.
    fn now(&self) -> u64 {
        self.inner.clock.nanos() / 1_000_000
    }

    /// How many clients' counts are held at present, expired ones that were not met again included.
    #[must_use]
    pub fn counts(&self) -> usize {
        self.inner.limiter.len()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStoreBuilder {
    /// How many clients' counts are kept per process, over all quotas. At 0 all clients share one count per quota.
    #[must_use]
    pub fn capacity(mut self, counts: usize) -> Self {
        self.capacity = counts;
        self
    }

    /// The clock by which windows pass; the system's by default.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            inner: Arc::new(Inner {
                boards: Boards::new(self.clock.clone()),
                clock: self.clock,
                limiter: Limiter::new(self.capacity),
                lockouts: Lockouts::new(self.capacity),
                users: RwLock::default(),
                flags: RwLock::default(),
                limits: RwLock::default(),
            }),
        }
    }
}

impl Store for MemoryStore {
    fn identity<'a>(&'a self, api_key: &'a str, _: Instant) -> StoreFuture<'a, Option<String>> {
        let user = read(&self.inner.users).get(&sha256(api_key)).cloned();
        future::ok(user).boxed()
    }

    fn flag<'a>(&'a self, name: &'a str, _: Instant) -> StoreFuture<'a, Option<bool>> {
        let on = read(&self.inner.flags).get(name).copied();
        future::ok(on).boxed()
    }

    // The decision is taken when the future is polled, as it is by the other stores: not when it is made.
    fn take<'a>(&'a self, takes: &'a [Take<'a>], _: Instant) -> StoreFuture<'a, Vec<Taken>> {
        async move { Ok(self.take_now(takes)) }.boxed()
    }

    fn begin_attempts<'a>(&'a self, attempts: &'a [Attempt<'a>], _: Instant) -> StoreFuture<'a, Vec<Begun>> {
        async move { Ok(self.begin_attempts_now(attempts)) }.boxed()
    }

    fn settle_attempts<'a>(&'a self, settled: &'a [Settlement<'a>], _: Instant) -> StoreFuture<'a, ()> {
        async move {
            self.settle_attempts_now(settled);
            Ok(())
        }
        .boxed()
    }

    fn lockout_status<'a>(
        &'a self,
        lockout: &'a Lockout,
        subject: &'a str,
        _: Instant,
    ) -> StoreFuture<'a, LockoutStatus> {
        async move { Ok(self.inner.lockouts.status(lockout, subject, self.now())) }.boxed()
    }

    fn unlock<'a>(&'a self, lockout: &'a Lockout, subject: &'a str, _: Instant) -> StoreFuture<'a, bool> {
        async move { Ok(self.unlock_now(lockout, subject)) }.boxed()
    }

    fn limits(&self, _: Instant) -> StoreFuture<'_, Vec<(String, String)>> {
        async move {
            let limits = read(&self.inner.limits);
            Ok(limits
                .iter()
                .map(|(name, limit)| (name.clone(), limit.clone()))
                .collect())
        }
        .boxed()
    }

    fn set_limit<'a>(&'a self, name: &'a str, limit: Option<&'a str>, _: Instant) -> StoreFuture<'a, ()> {
        async move {
            let mut limits = write(&self.inner.limits);
            match limit {
                Some(limit) => limits.insert(name.to_owned(), limit.to_owned()),
                None => limits.remove(name),
            };
            Ok(())
        }
        .boxed()
    }

    fn timing(&self) -> Timing {
        Timing::Immediate
    }

    fn board(&self) -> Option<&dyn BreakerBoard> {
        Some(&self.inner.boards)
    }

    fn probe(&self, _: Probe, _: Instant) -> StoreFuture<'_, ()> {
        future::ok(()).boxed()
    }
}

impl StoreAdmin for MemoryStore {
    fn add_api_key<'a>(&'a self, api_key: &'a str, user: &'a str) -> StoreFuture<'a, ()> {
        let added = check_api_key(api_key, user).map(|()| {
            write(&self.inner.users).insert(sha256(api_key), user.to_owned());
        });
        future::ready(added).boxed()
    }

    fn remove_api_key<'a>(&'a self, api_key: &'a str) -> StoreFuture<'a, bool> {
        let known = write(&self.inner.users).remove(&sha256(api_key)).is_some();
        future::ok(known).boxed()
    }

    fn set_flag<'a>(&'a self, name: &'a str, on: bool) -> StoreFuture<'a, ()> {
        write(&self.inner.flags).insert(name.to_owned(), on);
        future::ok(()).boxed()
    }

    fn clear_flag<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        let known = write(&self.inner.flags).remove(name).is_some();
        future::ok(known).boxed()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("api_keys", &read(&self.inner.users).len())
            .field("flags", &*read(&self.inner.flags))
            .field("counts", &self.counts())
            .finish()
    }
}

// No code panics while it holds one of these locks, so that a poisoned one is still whole.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
