//! A policy whose types cannot hold nonsense.

use std::{num::NonZeroU32, time::Duration};

use proc_macro2::Span;
use syn::ExprPath;

use crate::value::{HeaderName, KeyPath, Name};

/// What the attribute says.
///
/// Where an error was noted a default stands in, so that the rules across guards still see that the guard was written;
/// such a policy is checked but never expanded.
#[derive(Default)]
pub(crate) struct Policy {
    pub(crate) auth: Option<Auth>,
    pub(crate) flags: Vec<Flag>,
    pub(crate) rate_limits: Vec<RateLimit>,
    pub(crate) guards: Vec<ExprPath>,
    pub(crate) lockouts: Vec<Lockout>,
    /// Every lockout that says not whose attempts count.
    pub(crate) keyless: Vec<Span>,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) priority: Option<Priority>,
    /// Where `priority` stands, right or wrong.
    pub(crate) priority_word: Option<Span>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) breaker: Option<Breaker>,
    /// Where `breaker` stands, right or wrong.
    pub(crate) breaker_word: Option<Span>,
    /// Every `key = user`, also of guards that were left out because of a mistake elsewhere in them.
    pub(crate) user_keys: Vec<Span>,
}

/// `auth`; there is no mode to store, since it can only fail closed.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    pub(crate) header: Option<HeaderName>,
    pub(crate) deadline: Option<Duration>,
}

/// `flag`
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: Name,
    pub(crate) default: bool,
    pub(crate) blocks_when: bool,
    pub(crate) stale: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) span: Span,
}

/// `rate_limit`
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// `None` if it has a name only, and somebody else defines it.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) key: Key,
    /// At most the limit, and the burst.
    pub(crate) cost: Option<NonZeroU32>,
    pub(crate) on_outage: OnOutage,
    /// In percent, 1 to 100; only of a quota that fails local.
    pub(crate) local_share: Option<u8>,
    pub(crate) name: Option<Name>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) span: Span,
}

impl RateLimit {
    /// Whether both would count the same requests against the same number.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let same_numbers = match (&self.numbers, &other.numbers) {
            (Some(one), Some(other)) => one.limit == other.limit && one.window == other.window,
            (None, None) => true,
            _ => false,
        };
        self.name == other.name && same_numbers && self.key == other.key
    }

    /// Whether both have one name, and one count under it.
    pub(crate) fn shares_its_name(&self, other: &Self) -> bool {
        let same_window = match (&self.numbers, &other.numbers) {
            (Some(one), Some(other)) => one.window == other.window,
            // Whoever defines the name defines one window.
            _ => true,
        };
        self.name.is_some() && self.name == other.name && same_window
    }
}

/// What a quota lets pass, and how it counts.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) limit: NonZeroU32,
    pub(crate) window: Duration,
    pub(crate) algorithm: Algorithm,
    /// At most the limit; only of a token bucket.
    pub(crate) burst: Option<NonZeroU32>,
}

/// Who shares a quota.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Key {
    #[default]
    Ip,
    User,
    Global,
    Header(HeaderName),
    /// A fn of the user's own.
    Custom(KeyPath),
}

/// `lockout`
#[derive(Debug)]
pub(crate) struct Lockout {
    pub(crate) attempts: NonZeroU32,
    /// At least one; each longer than the one before.
    pub(crate) durations: Vec<Duration>,
    pub(crate) key: LockoutKey,
    pub(crate) on_outage: OnOutage,
    pub(crate) name: Option<Name>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) span: Span,
}

/// Whose attempts are counted together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockoutKey {
    Ip,
    User,
    /// A valid JSON pointer that is not the whole document.
    Json(String),
    /// The name of a form's field, not empty.
    Form(String),
    /// A fn of the user's own.
    Custom(KeyPath),
}

/// `concurrency`
#[derive(Debug)]
pub(crate) struct Concurrency {
    /// `None` after a mistake.
    pub(crate) limit: Option<NonZeroU32>,
    /// Whether a queue was asked for, in whatever words.
    pub(crate) has_queue: bool,
    pub(crate) queue: Option<NonZeroU32>,
    /// Only with a queue.
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) adaptive: bool,
}

/// Who is served first, and shed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Critical,
    Default,
    Background,
}

/// Whether a guard decides, or only reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Enforce,
    Observe,
}

/// How a quota counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Algorithm {
    #[default]
    SlidingWindow,
    FixedWindow,
    TokenBucket,
}

/// What a quota or a lockout answers while the store cannot tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum OnOutage {
    #[default]
    Open,
    Closed,
    Local,
}

/// Which breakers stand before the store.
#[derive(Debug)]
pub(crate) enum Breaker {
    Shared,
    PerOperation,
    Named(Name),
}
