//! A limit with all that requests need of it, worked out once.

use std::{ops::Deref, sync::Arc};

use poem::http::HeaderValue;

use crate::{
    fields,
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
    /// Its name in the `RateLimit` fields.
    pub(crate) name: sfv::String,
    /// `"default";q=30;w=60`.
    pub(crate) policy_item: HeaderValue,
}

/// The terms of one request: those of the attribute, or those that were in force when it came.
#[derive(Clone, Debug)]
pub(crate) enum TermsRef<'a> {
    Fixed(&'a Arc<Terms>, u64),
    Current(Arc<Terms>, u64),
}

impl Terms {
    /// `family` begins the quota's id, `name` stands in the fields.
    pub(crate) fn new(family: &str, limit: Limit, key: Key, name: &str) -> Self {
        let quota = Quota {
            id: quota_id(family, &limit, key),
            limit: limit.requests(),
            window: limit.window(),
            algorithm: limit.algorithm(),
            burst: limit.bucket(),
        };
        Self::of(limit, quota, fields::name(name))
    }

    fn of(limit: Limit, quota: Quota, name: sfv::String) -> Self {
        Self {
            in_force: limit,
            on_outage: limit.on_outage(),
            limit: HeaderValue::from(quota.limit),
            policy_item: fields::policy_item(&name, quota.limit, quota.window),
            name,
            quota,
        }
    }

    /// What this process counts by in an outage, if that is only so many percent of the quota.
    fn share(&self, percent: u8) -> Self {
        Self::of(self.in_force, share_of(&self.quota, percent), self.name.clone())
    }
}

impl TermsRef<'_> {
    /// The same terms, for whoever outlives the quota's handler.
    pub(crate) fn into_owned(self) -> TermsRef<'static> {
        match self {
            Self::Fixed(terms, version) => TermsRef::Current(Arc::clone(terms), version),
            Self::Current(terms, version) => TermsRef::Current(terms, version),
        }
    }

    /// What this process counts by in an outage, so many percent of the quota.
    pub(crate) fn local(&self, percent: u8) -> Self {
        match percent {
            ..100 => Self::Current(Arc::new(self.share(percent)), self.version()),
            _ => self.clone(),
        }
    }

    /// Counts the changes of what is in force: terms of one quota are the same as long as it is.
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

/// So many percent of a quota, rounded down, and at least 1.
fn share_of(quota: &Quota, percent: u8) -> Quota {
    let share = |of: u32| {
        u32::try_from(u64::from(of) * u64::from(percent) / 100)
            .unwrap_or(of)
            .max(1)
    };
    Quota {
        limit: share(quota.limit),
        burst: share(quota.burst),
        ..quota.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_never_nothing() {
        let quota = |limit, burst| Quota {
            id: "q".into(),
            limit,
            window: Duration::from_secs(60),
            algorithm: Algorithm::TokenBucket,
            burst,
        };
        for (percent, of, share) in [
            (25, (100, 10), (25, 2)),
            (1, (100, 99), (1, 1)),
            (33, (10, 1), (3, 1)),
            (99, (u32::MAX, u32::MAX), (4_252_017_622, 4_252_017_622)),
            (100, (7, 7), (7, 7)),
        ] {
            assert_eq!(
                share_of(&quota(of.0, of.1), percent),
                quota(share.0, share.1),
                "{percent}% of {of:?}"
            );
        }
    }
}
