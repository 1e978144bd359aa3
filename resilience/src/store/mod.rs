//! Where keys, flags and counters live.
//!
//! A [`Store`] speaks in whole decisions ("take one from these quotas"), never in raw commands, so that each one is
//! atomic and costs one round trip. [`RedisStore`] is the shared one, [`MemoryStore`] the embedded one.

mod account;
mod admin;
pub mod board;
mod bucket;
mod flag_value;
mod key_secret;
pub(crate) mod layout;
pub(crate) mod lockout;
mod log;
mod memory;
mod redis;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
mod window;

use std::{error::Error as StdError, fmt, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub(crate) use self::key_secret::KeySecret;
pub use self::{
    admin::StoreAdmin,
    board::BreakerBoard,
    flag_value::flag_value,
    key_secret::InvalidKeySecret,
    layout::{ApiKeys, InvalidPrefix, KeyLayout},
    lockout::{Attempt, Begun, Lockout, LockoutStatus, Refused, Settle, Settlement},
    memory::{MemoryStore, MemoryStoreBuilder},
    redis::{RedisStore, RedisStoreBuilder, RedisStoreError},
};
pub use crate::policy::Algorithm;

/// The future that a store's operation returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A place that answers the guards' questions.
///
/// Every operation is one atomic decision. `deadline` says until when its answer is of use: the caller drops the future
/// at that instant at the latest (earlier, if it has less time itself), so an implementation needs no timer of its own;
/// it may read the instant to bound what it starts.
///
/// # Cancel safety
///
/// Every operation may be dropped at any await. A decision that was already sent may then still take effect (one
/// request more is counted); it is never half done.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The user to whom an API key belongs; `None` for an unknown key.
    fn identity<'a>(&'a self, api_key: &'a str, deadline: Instant) -> StoreFuture<'a, Option<String>>;

    /// A flag's value; `None` for a flag that nobody has set. A store that keeps text reads it with [`flag_value`], whose
    /// errors are marked as [unreadable](StoreError::is_unreadable).
    fn flag<'a>(&'a self, name: &'a str, deadline: Instant) -> StoreFuture<'a, Option<bool>>;

    /// Takes its cost from each of these quotas, or nothing from any of them.
    ///
    /// Answers in the order of `takes`. If any entry is refused, nothing is consumed anywhere.
    fn take<'a>(&'a self, takes: &'a [Take<'a>], deadline: Instant) -> StoreFuture<'a, Vec<Taken>>;

    /// Begins one attempt against each of these tallies, or against none if one of them refuses it: a tally that is
    /// locked, or whose failures and attempts under way make up the limit. An attempt is under way until it is settled,
    /// at most 30 s; then it has failed.
    ///
    /// Answers in the order of `attempts`. A store that keeps no lockouts may leave this and the next three operations
    /// out: lockouts then do what they do in an outage.
    fn begin_attempts<'a>(&'a self, attempts: &'a [Attempt<'a>], deadline: Instant) -> StoreFuture<'a, Vec<Begun>> {
        let _ = (attempts, deadline);
        no_lockouts()
    }

    /// Settles attempts. For one that is no longer counted (its lock has run out, or the tally was unlocked meanwhile),
    /// only the failures of its origin change, and only by [`Settle::Clear`].
    fn settle_attempts<'a>(&'a self, settled: &'a [Settlement<'a>], deadline: Instant) -> StoreFuture<'a, ()> {
        let _ = (settled, deadline);
        no_lockouts()
    }

    /// The state of a tally. Changes nothing.
    fn lockout_status<'a>(
        &'a self,
        lockout: &'a Lockout,
        subject: &'a str,
        deadline: Instant,
    ) -> StoreFuture<'a, LockoutStatus> {
        let _ = (lockout, subject, deadline);
        no_lockouts()
    }

    /// Forgets a tally, its lock and its history; `false` if there was nothing to forget.
    fn unlock<'a>(&'a self, lockout: &'a Lockout, subject: &'a str, deadline: Instant) -> StoreFuture<'a, bool> {
        let _ = (lockout, subject, deadline);
        no_lockouts()
    }

    /// All limits that were set by name, as [`Limits::set`](crate::Limits::set) wrote them: name and text. None in a store
    /// that keeps no limits.
    fn limits(&self, deadline: Instant) -> StoreFuture<'_, Vec<(String, String)>> {
        let _ = deadline;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Sets a limit by name, or takes it away. It never expires.
    fn set_limit<'a>(&'a self, name: &'a str, limit: Option<&'a str>, deadline: Instant) -> StoreFuture<'a, ()> {
        let _ = (name, limit, deadline);
        let error = StoreError::new(StoreErrorKind::Answered, "this store keeps no limits");
        Box::pin(std::future::ready(Err(error)))
    }

    /// How this store keeps the time of its operations. The guards keep it by default.
    fn timing(&self) -> Timing {
        Timing::ByGuards
    }

    /// Whether operations wait in line in this process before they are sent. Guards then find out how the caller was
    /// answered before, which decides who is served first. Asked with every operation: it has to be cheap.
    fn has_line(&self) -> bool {
        false
    }

    /// Where instances tell each other of their breakers; `None` in a store that carries none.
    fn board(&self) -> Option<&dyn BreakerBoard> {
        None
    }

    /// Whether the store would serve again, asked in the background while its breaker is open.
    fn probe(&self, kind: Probe, deadline: Instant) -> StoreFuture<'_, ()>;
}

/// Which side ends an operation that has no answer at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timing {
    /// The guards: an operation without an answer at its deadline counts as a failure of the store, also when this process
    /// was too busy to look.
    #[default]
    ByGuards,
    /// The store: each operation ends by its deadline, counted from when its command is sent, with
    /// [`StoreErrorKind::TimedOut`] if no answer has come. Guards wait for that, since time which this process lets pass
    /// before and after says nothing about the store. They give up 2 s after the deadline, without blame.
    ByStore,
    /// Neither: every operation is ready at its first poll, so that nothing has to be bounded.
    Immediate,
}

/// What must work for a breaker to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probe {
    /// A write: a demoted primary still answers a `PING`.
    Write,
    /// A read, from a server that is a primary.
    Read,
}

/// A quota as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Tells this quota from all others. Comes from code, never from a client.
    pub id: String,
    /// Requests in a window; at least 1.
    pub limit: u32,
    /// Length of the window; from 1 ms to 366 days.
    pub window: Duration,
    /// How it counts.
    pub algorithm: Algorithm,
    /// How much may pass at once; from 1 to the limit. Only a token bucket looks at it.
    pub burst: u32,
}

/// One request's claim on one quota.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a> {
    /// Which quota.
    pub quota: &'a Quota,
    /// Whose bucket: bounded and unambiguous already (see [`ClientKey`](crate::client::ClientKey)).
    pub client: &'a str,
    /// As how many requests it counts; from 1 to the limit (of a token bucket: to the burst), and as that if it is more.
    pub cost: u32,
}

/// What one quota said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether this quota has room. The request passes only if all of them have.
    pub allowed: bool,
    /// Requests of cost 1 that would still pass after this one.
    pub remaining: u32,
    /// Refused: how long until a retry passes (rounded up to the millisecond, never zero).
    /// Allowed with too little remaining for another of the same cost: how long until that would pass. Otherwise zero.
    pub retry_after: Duration,
    /// How long until capacity returns: until the current window ends, until the oldest unit leaves an exact sliding
    /// window, or until a token bucket is full; at least `retry_after`. Zero if nothing is counted in such a window, or if
    /// the bucket is full.
    pub reset: Duration,
}

/// Why a store gave no answer.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    is_denied: bool,
    is_unreadable: bool,
    is_reported: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What an error says about the store's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached or cannot serve: counts against its breaker.
    Unavailable,
    /// The store has not answered by the operation's deadline: counts against its breaker.
    TimedOut,
    /// The store is well and has answered, but not with anything of use (a key of the wrong type, a forbidden command):
    /// leaves its breaker alone.
    Answered,
    /// The store was not asked, since this process is short of something (connections, places in a queue): leaves its
    /// breaker alone. Guards refuse the request with 503 `overloaded`, whatever they do in an outage.
    Saturated,
}

impl StoreError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            is_denied: false,
            is_unreadable: false,
            is_reported: false,
            source: None,
        }
    }

    /// Says that the store has refused our credentials, or forbids the command.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.is_denied = true;
        self
    }

    /// Marks a value that is set but cannot be read: a flag that is not one of the accepted words.
    #[must_use]
    pub fn unreadable(mut self) -> Self {
        self.is_unreadable = true;
        self
    }

    /// Says that another operation reports the same event: this one is no further failure of the store. One connection that
    /// ends, or one pause of the server, is one failure, however many operations were under way.
    #[must_use]
    pub fn reported(mut self) -> Self {
        self.is_reported = true;
        self
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What it says about the store's health.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether another operation reports the same event to the breaker.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// The store has refused our credentials, or forbids the command: waiting alone will not help, but whoever changes the
    /// password or the permissions will.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// The store answered, but the value is unreadable: it stays so until an operator writes another one.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

fn no_lockouts<T: Send + 'static>() -> StoreFuture<'static, T> {
    let error = StoreError::new(StoreErrorKind::Answered, "this store keeps no lockouts");
    Box::pin(std::future::ready(Err(error)))
}

/// The longest API key that a guard looks up, in bytes.
pub(crate) const MAX_API_KEY: usize = 512;

/// Refuses what no request could present, or no guard accept.
fn check_api_key(api_key: &str, user: &str) -> Result<(), StoreError> {
    let refused = |why: &str| Err(StoreError::new(StoreErrorKind::Answered, why));
    if api_key.is_empty() || api_key.len() > MAX_API_KEY {
        refused("an API key has 1 to 512 bytes")
    } else if user.is_empty() {
        refused("a user's id is not empty")
    } else {
        Ok(())
    }
}
