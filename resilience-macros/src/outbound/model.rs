//! What `#[outbound]` says, in types that cannot hold nonsense.

use std::{num::NonZeroU32, time::Duration};

use proc_macro2::Span;
use syn::{Error, ExprPath};

use crate::{args::Value, value::Name};

/// The attribute.
///
/// An option that was written wrong is still there, with no value, so that rules across options know that it was meant;
/// such an attribute is checked but never expanded.
#[derive(Default)]
pub(crate) struct Outbound {
    pub(crate) breaker: Option<Set<Name>>,
    pub(crate) timeout: Option<Set<Duration>>,
    pub(crate) attempt_timeout: Option<Set<Duration>>,
    pub(crate) retry: Option<Retry>,
    pub(crate) bulkhead: Option<Bulkhead>,
    pub(crate) fallback: Option<Set<ExprPath>>,
    pub(crate) classify: Option<Set<ExprPath>>,
}

/// An option that was written, with what it says unless that was a mistake.
pub(crate) struct Set<T> {
    pub(crate) parsed: Option<T>,
    pub(crate) written: Value,
}

impl<T> Set<T> {
    /// An error that underlines the option's value.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        self.written.error(message)
    }
}

/// `retry`
pub(crate) struct Retry {
    /// Attempts after the first one.
    pub(crate) retries: Option<NonZeroU32>,
    /// The longest first wait.
    pub(crate) backoff: Option<Set<Duration>>,
    /// The longest wait of all.
    pub(crate) max_backoff: Option<Set<Duration>>,
    /// Whose retries are bounded together.
    pub(crate) budget: Option<Set<Name>>,
    pub(crate) span: Span,
}

/// `bulkhead`
pub(crate) struct Bulkhead {
    pub(crate) limit: Option<NonZeroU32>,
    pub(crate) queue: Option<Set<NonZeroU32>>,
    pub(crate) queue_timeout: Option<Set<Duration>>,
    pub(crate) name: Option<Set<Name>>,
}

/// What a set option says, if it was written and written right.
pub(crate) fn parsed<T>(option: Option<&Set<T>>) -> Option<&T> {
    option.and_then(|set| set.parsed.as_ref())
}
