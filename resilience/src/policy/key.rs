//! Who shares a quota.

use std::fmt;

use poem::Request;

/// Who shares a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// One bucket per client address (IPv6: per prefix).
    Ip,
    /// One bucket per verified user.
    User,
    /// One bucket for everybody.
    Global,
    /// One bucket per value of this header (lower case). Anybody can claim any value: it limits, it does not identify.
    Header(&'static str),
    /// One bucket per value that a fn of the user's own returns.
    Custom(KeyFn),
}

/// A fn of the user's own that names the client, and the path under which the attribute knows it.
///
/// `None` is a client like any other: all requests that have no key share one bucket.
#[derive(Clone, Copy)]
pub struct KeyFn {
    path: &'static str,
    of: fn(&Request) -> Option<String>,
}

impl KeyFn {
    /// The fn `of`, known as `path`.
    #[must_use]
    pub const fn new(path: &'static str, of: fn(&Request) -> Option<String>) -> Self {
        Self { path, of }
    }

    /// The path under which the attribute knows it.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// The key of a request.
    #[must_use]
    pub fn of(&self, request: &Request) -> Option<String> {
        (self.of)(request)
    }
}

/// By path: what the compiler makes of a fn's address says nothing about which fn it is.
impl PartialEq for KeyFn {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for KeyFn {}

impl fmt::Debug for KeyFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}
