//! `auth`.

use std::time::Duration;

/// `auth = "fail_closed"`: the caller must be verified, and an unverifiable one is refused.
///
/// There is no `fail_open`: it would be an authentication bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth {
    pub(crate) header: Option<&'static str>,
    pub(crate) deadline: Option<Duration>,
}

impl Auth {
    /// Refuses whoever cannot be verified.
    #[must_use]
    pub const fn fail_closed() -> Self {
        Self {
            header: None,
            deadline: None,
        }
    }

    /// Reads the credential from `header` (lower case) instead of the builder's.
    #[must_use]
    pub const fn with_header(mut self, header: &'static str) -> Self {
        self.header = Some(header);
        self
    }

    /// Bounds the look-up; the default is the builder's (150 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}
