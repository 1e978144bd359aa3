//! A limit with all that requests need of it, worked out once.

use std::{ops::Deref, sync::Arc};

use poem::http::HeaderValue;

use crate::{
    error::whole_seconds,
    policy::{Algorithm, Key, Limit, OnOutage},
    store::Quota,
};

/// What holds for one quota and one kind of key.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) in_force: Limit,
    pub(crate) quota: Quota,
    /// What happens in an outage, if the limit decides it and not the handler.
    pub(crate) on_outage: Option<OnOutage>,
    /// `x-ratelimit-limit`.
    pub(crate) limit: HeaderValue,
    /// `"default"`: its name in the `RateLimit` fields, as a structured-field string.
    pub(crate) item: String,
    /// `"default";q=30;w=60`.
    pub(crate) policy_item: HeaderValue,
}

/// The terms of one request: those of the attribute, or those that were in force when it came.
#[derive(Clone, Debug)]
pub(crate) enum TermsRef<'a> {
    Fixed(&'a Terms, u64),
    Current(Arc<Terms>, u64),
}

impl Terms {
    /// `family` begins the quota's id, `name` stands in the fields: printable ASCII without quotes and backslashes, so
    /// that it is a structured-field string as it is.
    pub(crate) fn new(family: &str, limit: Limit, key: Key, name: &str) -> Self {
        let item = format!("\"{name}\"");
        let policy_item = format!("{item};q={};w={}", limit.requests(), whole_seconds(limit.window()));
        Self {
            in_force: limit,
            quota: Quota {
                id: quota_id(family, &limit, key),
                limit: limit.requests(),
                window: limit.window(),
                algorithm: limit.algorithm(),
                burst: limit.bucket(),
            },
            on_outage: limit.on_outage(),
            limit: HeaderValue::from(limit.requests()),
            policy_item: HeaderValue::from_str(&policy_item).expect("a name is printable ASCII"),
            item,
        }
    }
}

impl TermsRef<'_> {
    /// Counts the changes of what is in force: terms of one quota are the same as long as it is.
    #[allow(dead_code, reason = "for what remembers answers that hold for these terms only")]
    pub(crate) const fn version(&self) -> u64 {
        match self {
            Self::Fixed(_, version) | Self::Current(_, version) => *version,
        }
    }
}

impl Deref for TermsRef<'_> {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        match self {
            Self::Fixed(terms, _) => terms,
            Self::Current(terms, _) => terms,
        }
    }
}

/// What begins the id of all quotas of a name.
pub(crate) fn named_family(name: &str) -> String {
    format!("={name}")
}

/// A key as ids and metrics write it.
pub(crate) fn key_id(key: Key) -> &'static str {
    match key {
        Key::Ip => "ip",
        Key::User => "user",
        Key::Global => "global",
        Key::Header(name) => name,
        Key::Custom(key) => key.path(),
    }
}

/// Tells the quota from all others in the store. What changes the meaning of a stored count is part of every id: a burst
/// does not, since a bucket is stored as the time at which it will be full, nor does a cost.
fn quota_id(family: &str, limit: &Limit, key: Key) -> String {
    let algorithm = match limit.algorithm() {
        Algorithm::SlidingWindow => "sliding",
        Algorithm::FixedWindow => "fixed",
        Algorithm::TokenBucket => "bucket",
    };
    format!("{family}:{}ms:{algorithm}:{}", limit.window().as_millis(), key_id(key))
}
