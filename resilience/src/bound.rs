//! A policy bound to a runtime: everything about it that does not change from request to request, worked out once.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use poem::http::{HeaderName, HeaderValue};

use crate::{
    fields,
    guard::{flag::LastKnown, lockout::Lockouts},
    observe::{Complaints, Tally},
    policy::{Algorithm, Flag, Key, Mode, OnOutage, Policy, RateLimit},
    runtime::{Runtime, Settings},
    store::Quota,
    store_breaker::{Operation, StoreBreaker},
};

/// A policy with its breakers, quotas and counters.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) policy: &'static Policy,
    /// Quotas by address, header and everybody: phase A.
    pub(crate) quotas: Quotas,
    pub(crate) flags: Vec<BoundFlag>,
    pub(crate) auth: Option<BoundAuth>,
    pub(crate) guards: Vec<BoundGuard>,
    /// Quotas by user, and by keys of the user's own, which may look at who that is: after authentication.
    pub(crate) user_quotas: Quotas,
    pub(crate) lockouts: Option<Arc<Lockouts>>,
}

/// The quotas of one phase.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// Those that decide.
    pub(crate) all: Vec<BoundQuota>,
    /// Those that only observe. Each is asked for by itself: it takes nothing from the others, nor they from it.
    pub(crate) observed: Vec<BoundQuota>,
    /// One question is asked for all that decide, so the shortest deadline is everybody's.
    pub(crate) deadline: Duration,
    pub(crate) breaker: Arc<StoreBreaker>,
    pub(crate) complaints: Complaints,
}

#[derive(Debug)]
pub(crate) struct BoundQuota {
    pub(crate) spec: RateLimit,
    pub(crate) terms: Terms,
    /// What this process counts by in an outage, where that is only a share of it.
    share: Option<Terms>,
    pub(crate) deadline: Duration,
    pub(crate) tally: Tally,
    /// What it would have answered, if it only observes.
    pub(crate) would_have: Complaints,
}

/// What a quota counts by, and how the headers put it.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) quota: Quota,
    /// `x-ratelimit-limit`.
    pub(crate) limit: HeaderValue,
    /// Its name in the `RateLimit` fields.
    pub(crate) name: sfv::String,
    /// `"default";q=30;w=60`.
    pub(crate) policy_item: HeaderValue,
    /// Changes with the limits. What was learnt under another version says nothing about these.
    pub(crate) version: u64,
}

#[derive(Debug)]
pub(crate) struct BoundFlag {
    pub(crate) spec: Flag,
    pub(crate) deadline: Duration,
    pub(crate) breaker: Arc<StoreBreaker>,
    pub(crate) last_known: Arc<LastKnown>,
    /// The flag's name, as `x-flag-fallback` says it.
    pub(crate) header: HeaderValue,
    pub(crate) tally: Tally,
    pub(crate) complaints: Complaints,
    /// What it would have answered, if it only observes.
    pub(crate) would_have: Complaints,
}

#[derive(Debug)]
pub(crate) struct BoundAuth {
    pub(crate) header: HeaderName,
    pub(crate) deadline: Duration,
    pub(crate) breaker: Arc<StoreBreaker>,
    pub(crate) tally: Tally,
    pub(crate) complaints: Complaints,
}

#[derive(Debug)]
pub(crate) struct BoundGuard {
    pub(crate) guard: &'static dyn crate::guard::Guard,
    pub(crate) tally: Tally,
    pub(crate) complaints: Complaints,
}

impl Bound {
    pub(crate) fn new(policy: &'static Policy, runtime: &Runtime) -> Self {
        let settings = &runtime.settings;
        let choice = policy.breaker().unwrap_or(settings.breakers);
        let breaker = |operation| runtime.breakers.for_operation(choice, operation);
        let (user, other): (Vec<_>, Vec<_>) = named(policy)
            .into_iter()
            .partition(|(spec, _)| matches!(spec.key, Key::User | Key::Custom(_)));
        let quotas = |specs| Quotas::new(policy, specs, settings, breaker(Operation::RateLimit));
        Self {
            policy,
            quotas: quotas(other),
            user_quotas: quotas(user),
            lockouts: (!policy.lockouts().is_empty())
                .then(|| Lockouts::new(policy, settings, breaker(Operation::Lockout)))
                .flatten(),
            flags: policy
                .flags()
                .iter()
                .map(|&spec| BoundFlag {
                    spec,
                    deadline: spec.deadline.unwrap_or(settings.flag_deadline),
                    breaker: breaker(Operation::Flag),
                    last_known: runtime.last_known(spec.name),
                    header: HeaderValue::from_str(spec.name).unwrap_or(HeaderValue::from_static("unnamed")),
                    tally: Tally::default(),
                    complaints: Complaints::default(),
                    would_have: Complaints::default(),
                })
                .collect(),
            auth: policy.auth().map(|auth| BoundAuth {
                header: auth
                    .header
                    .map_or_else(|| settings.auth_header.clone(), HeaderName::from_static),
                deadline: auth.deadline.unwrap_or(settings.auth_deadline),
                breaker: breaker(Operation::Auth),
                tally: Tally::default(),
                complaints: Complaints::default(),
            }),
            guards: policy
                .guards()
                .iter()
                .map(|&guard| BoundGuard {
                    guard,
                    tally: Tally::default(),
                    complaints: Complaints::default(),
                })
                .collect(),
        }
    }
}

impl Quotas {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.observed.is_empty()
    }

    fn new(policy: &Policy, specs: Vec<(RateLimit, String)>, settings: &Settings, breaker: Arc<StoreBreaker>) -> Self {
        let bound = |(spec, name): (RateLimit, String)| {
            let deadline = spec.deadline.unwrap_or(settings.rate_limit_deadline);
            BoundQuota::new(policy, spec, &name, deadline)
        };
        let (all, observed): (Vec<_>, Vec<_>) = specs
            .into_iter()
            .map(bound)
            .partition(|quota| quota.spec.mode == Mode::Enforce);
        Self {
            deadline: all.iter().map(|quota| quota.deadline).min().unwrap_or_default(),
            all,
            observed,
            breaker,
            complaints: Complaints::default(),
        }
    }
}

impl BoundQuota {
    fn new(policy: &Policy, spec: RateLimit, name: &str, deadline: Duration) -> Self {
        let quota = Quota {
            id: quota_id(policy, &spec),
            limit: spec.limit,
            window: spec.window,
            algorithm: spec.algorithm,
            burst: spec.burst(),
        };
        let shares = spec.on_outage == OnOutage::FailLocal && spec.local_share < 100;
        Self {
            share: shares.then(|| Terms::new(share_of(&quota, spec.local_share), name)),
            terms: Terms::new(quota, name),
            deadline,
            spec,
            tally: Tally::default(),
            would_have: Complaints::default(),
        }
    }

    /// What this process counts by in an outage.
    pub(crate) fn local(&self) -> &Terms {
        self.share.as_ref().unwrap_or(&self.terms)
    }
}

impl Terms {
    fn new(quota: Quota, name: &str) -> Self {
        let name = fields::name(name);
        Self {
            policy_item: fields::policy_item(&name, quota.limit, quota.window),
            limit: HeaderValue::from(quota.limit),
            name,
            quota,
            version: 0,
        }
    }
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

/// Each quota with the name that its `RateLimit` fields carry: its own, or `default`, `default-2`, …
fn named(policy: &Policy) -> Vec<(RateLimit, String)> {
    let mut unnamed = 0;
    let name = |&spec: &RateLimit| match spec.name {
        Some(name) => (spec, name.to_owned()),
        None => {
            unnamed += 1;
            let name = if unnamed == 1 {
                "default".into()
            } else {
                format!("default-{unnamed}")
            };
            (spec, name)
        }
    };
    policy.rate_limits().iter().map(name).collect()
}

/// Tells the quota from all others in the store. A named one is shared by all that use the name; any other belongs to
/// its handler, with its limit, window and key. What changes the meaning of a stored count is part of every id: a burst
/// does not, since a bucket is stored as the time at which it will be full, nor does a cost.
fn quota_id(policy: &Policy, spec: &RateLimit) -> String {
    let mut id = match spec.name {
        Some(name) => format!("={name}"),
        None => format!("{}::{}:{}", policy.module(), policy.name(), spec.limit),
    };
    let algorithm = match spec.algorithm {
        Algorithm::SlidingWindow => "sliding",
        Algorithm::FixedWindow => "fixed",
        Algorithm::TokenBucket => "bucket",
    };
    let key = match spec.key {
        Key::Ip => "ip",
        Key::User => "user",
        Key::Global => "global",
        Key::Header(name) => name,
        Key::Custom(key) => key.path(),
    };
    write!(id, ":{}ms:{algorithm}:{key}", spec.window.as_millis()).expect("a String takes all");
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_quota_is_its_handlers_unless_it_is_named() {
        let (a, b) = (Policy::new("app", "a"), Policy::new("app", "b"));
        let quota = RateLimit::new(30, MINUTE);
        assert_eq!(quota_id(&a, &quota), "app::a:30:60000ms:sliding:ip");
        assert_ne!(quota_id(&a, &quota), quota_id(&b, &quota));
        assert_ne!(quota_id(&a, &quota), quota_id(&a, &RateLimit::new(31, MINUTE)));
        let shared = quota.with_name("api");
        assert_eq!(quota_id(&a, &shared), "=api:60000ms:sliding:ip");
        assert_eq!(quota_id(&a, &shared), quota_id(&b, &shared));
        assert_ne!(quota_id(&a, &shared), quota_id(&a, &shared.with_key(Key::Global)));
    }

    #[test]
    fn a_share_is_rounded_down_and_never_nothing() {
        let quota = |limit, burst| Quota {
            id: "q".into(),
            limit,
            window: MINUTE,
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

    #[test]
    fn unnamed_quotas_are_told_apart_in_the_fields() {
        static QUOTAS: [RateLimit; 3] = [
            RateLimit::new(1, MINUTE),
            RateLimit::new(2, MINUTE).with_name("api"),
            RateLimit::new(3, MINUTE),
        ];
        let policy = Policy::new("app", "a").with_rate_limits(&QUOTAS);
        let names: Vec<_> = named(&policy).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["default", "api", "default-2"]);
    }
}
