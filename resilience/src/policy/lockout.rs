//! `lockout`.

use std::time::Duration;

use super::{KeyFn, Mode, OnOutage};

/// `lockout(5, "15m", key = ip)`: attempts to log in, and how long too many of them lock out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    pub(crate) attempts: u32,
    pub(crate) durations: &'static [Duration],
    pub(crate) key: LockoutKey,
    pub(crate) on_outage: OnOutage,
    pub(crate) name: Option<&'static str>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) mode: Mode,
}

impl Lockout {
    /// `attempts` that fail until `key` is locked out for the first of `durations`, then for the second, and so on; the last
    /// one repeats. Failures count for as long as the last one. Fails closed.
    ///
    /// There is at least one duration, and each is longer than the one before.
    #[must_use]
    pub const fn new(attempts: u32, durations: &'static [Duration], key: LockoutKey) -> Self {
        Self {
            attempts,
            durations,
            key,
            on_outage: OnOutage::FailClosed,
            name: None,
            deadline: None,
            mode: Mode::Enforce,
        }
    }

    /// What happens while the store cannot tell.
    #[must_use]
    pub const fn with_on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// Shares the tally among all handlers that name it so.
    #[must_use]
    pub const fn with_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Bounds the store's answer; the default is the builder's (100 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Whether it decides; it does unless told otherwise.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }
}

/// Whose attempts are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockoutKey {
    /// One tally per client address (IPv6: per prefix).
    Ip,
    /// One tally per verified user.
    User,
    /// One tally per account that the request's body names.
    Account(AccountField),
    /// One tally per value that a fn of the user's own returns.
    Custom(KeyFn),
}

/// Where a body names the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccountField {
    /// At this JSON pointer (RFC 6901), such as `/username`.
    Json(&'static str),
    /// In this field of an HTML form (`application/x-www-form-urlencoded`).
    Form(&'static str),
}
