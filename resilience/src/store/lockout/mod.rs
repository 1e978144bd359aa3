//! Tallies of attempts, and the locks that they lead to.

pub(crate) mod tally;

use std::time::Duration;

/// A lockout as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// Tells this lockout from all others. Comes from code, never from a client.
    pub id: String,
    /// Attempts that lead to a lock; from 1 to 1,000.
    pub attempts: u32,
    /// How long the first lock lasts, the second, and so on; the last one repeats, and is how long attempts count. Not
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
}

/// What one tally said to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Whether it is not locked. The attempt may go on only if none of the tallies is.
    pub allowed: bool,
    /// Attempts that may still begin before it locks.
    pub remaining: u32,
    /// Locked: for how long (rounded up to the millisecond, never zero). Otherwise zero.
    pub retry_after: Duration,
}

/// What becomes of an attempt that does not stay counted.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// Which attempt.
    pub attempt: Attempt<'a>,
    /// What becomes of it.
    pub settle: Settle,
}

/// How an attempt is settled that does not stay counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The tally is forgotten, with its lock and its history.
    Clear,
    /// This attempt is taken off the tally. If the lock came of it, the lock goes too.
    GiveBack,
}

/// How a tally stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockoutStatus {
    /// Attempts that count at present.
    pub attempts: u32,
    /// How long the tally stays locked; `None` if it is not.
    pub locked_for: Option<Duration>,
    /// Locks that are remembered, the present one included: which duration is next.
    pub locks: u32,
}
