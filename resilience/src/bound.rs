//! A policy bound to a runtime: everything about it that does not change from request to request, worked out once.

use std::{sync::Arc, time::Duration};

use poem::http::{HeaderName, HeaderValue};

use crate::{
    concurrency::{ConcurrencyConfig, Priority},
    guard::{concurrency::Slots, flag::FlagState, lockout::Lockouts},
    limits::{NamedLimit, NamedLimits, Terms, TermsRef, named_family},
    observe::{Complaints, Overruns, Tally},
    policy::{Flag, Key, Mode, Policy, RateLimit},
    runtime::Runtime,
    store_breaker::{Operation, StoreBreaker},
};

/// A policy with its breakers, quotas and counters.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The path of the module or fn that holds the handler.
    pub(crate) module: &'static str,
    /// The handler's name.
    pub(crate) name: &'static str,
    /// Quotas by address, header and everybody: phase A.
    pub(crate) quotas: Quotas,
    pub(crate) flags: Vec<BoundFlag>,
    pub(crate) auth: Option<BoundAuth>,
    pub(crate) guards: Vec<BoundGuard>,
    /// Quotas by user, and by keys of the user's own, which may look at who that is: after authentication.
    pub(crate) user_quotas: Quotas,
    pub(crate) lockouts: Option<Arc<Lockouts>>,
    pub(crate) slots: Option<Slots>,
    /// The budget of the handler, if it has one of its own.
    pub(crate) deadline: Option<Duration>,
    /// Handlers that ran on after their deadline.
    pub(crate) overruns: Overruns,
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
    /// What the handler's own numbers say, if it has any.
    own: Option<Arc<Terms>>,
    /// What the name says: before the handler's own numbers, if it was defined elsewhere.
    named: Option<Arc<NamedLimit>>,
    /// Its name in metrics, whatever its numbers are at present.
    pub(crate) label: String,
    pub(crate) deadline: Duration,
    pub(crate) tally: Tally,
    pub(crate) complaints: Complaints,
    /// What it would have answered, if it only observes.
    pub(crate) would_have: Complaints,
}

#[derive(Debug)]
pub(crate) struct BoundFlag {
    pub(crate) spec: Flag,
    pub(crate) deadline: Duration,
    pub(crate) breaker: Arc<StoreBreaker>,
    pub(crate) state: Arc<FlagState>,
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
    pub(crate) fn new(policy: &Policy, runtime: &Runtime) -> Self {
        let settings = &runtime.settings;
        let choice = policy.breaker().unwrap_or(settings.breakers);
        let breaker = |operation| runtime.breakers.for_operation(choice, operation);
        let (module, name) = (policy.place(), policy.name());
        let (quotas, user_quotas) = Quotas::by_phase(
            (module, name),
            policy.rate_limits(),
            runtime,
            &breaker(Operation::RateLimit),
        );
        Self {
            module,
            name,
            slots: policy
                .concurrency()
                .map(|spec| Slots::new(format!("{module}::{name}"), spec.into(), policy.priority())),
            deadline: policy.deadline(),
            overruns: Overruns::default(),
            quotas,
            user_quotas,
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
                    state: runtime.flag_state(spec.name),
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

/// The module and the name of the handler that unnamed quotas belong to.
type Owner = (&'static str, &'static str);

impl Bound {
    /// Guards around a whole app: those that need to know no handler.
    pub(crate) fn inbound(
        name: &'static str,
        quotas: &[RateLimit],
        slots: Option<(ConcurrencyConfig, Priority)>,
        deadline: Option<Duration>,
        runtime: &Runtime,
    ) -> Self {
        let module = "inbound";
        let breaker = runtime
            .breakers
            .for_operation(runtime.settings.breakers, Operation::RateLimit);
        let (quotas, user_quotas) = Quotas::by_phase((module, name), quotas, runtime, &breaker);
        Self {
            module,
            name,
            quotas,
            flags: Vec::new(),
            auth: None,
            guards: Vec::new(),
            user_quotas,
            lockouts: None,
            slots: slots.map(|(config, priority)| Slots::new(format!("{module}::{name}"), config, priority)),
            deadline,
            overruns: Overruns::default(),
        }
    }
}

impl Quotas {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.observed.is_empty()
    }

    /// Those of phase A, and those that come after authentication.
    fn by_phase(owner: Owner, specs: &[RateLimit], runtime: &Runtime, breaker: &Arc<StoreBreaker>) -> (Self, Self) {
        let (user, other): (Vec<_>, Vec<_>) = named(specs)
            .into_iter()
            .partition(|(spec, _)| matches!(spec.key, Key::User | Key::Custom(_)));
        let quotas = |specs| Self::new(owner, specs, runtime, Arc::clone(breaker));
        (quotas(other), quotas(user))
    }

    fn new(owner: Owner, specs: Vec<(RateLimit, String)>, runtime: &Runtime, breaker: Arc<StoreBreaker>) -> Self {
        let bound = |(spec, name): (RateLimit, String)| {
            let deadline = spec.deadline.unwrap_or(runtime.settings.rate_limit_deadline);
            BoundQuota::new(owner, spec, &name, deadline, &runtime.limits)
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
    fn new(owner: Owner, spec: RateLimit, name: &str, deadline: Duration, limits: &NamedLimits) -> Self {
        let family = quota_family(owner, &spec);
        let own = spec
            .limit
            .map(|limit| Arc::new(Terms::new(&family, limit, spec.key, name)));
        Self {
            label: own.as_ref().map_or_else(
                || format!("{family}:{}", crate::limits::key_id(spec.key)),
                |own| own.quota.id.clone(),
            ),
            own,
            named: spec.name.map(|name| limits.used(name, &spec)),
            deadline,
            spec,
            tally: Tally::default(),
            complaints: Complaints::default(),
            would_have: Complaints::default(),
        }
    }

    /// What holds now; `None` if nobody defines it.
    pub(crate) fn terms(&self) -> Option<TermsRef<'_>> {
        match (&self.named, &self.own) {
            (None, own) => own.as_ref().map(|own| TermsRef::Fixed(own, 0)),
            (Some(named), own) => named.terms(self.spec.key, own.as_ref()),
        }
    }
}

/// Each quota with the name that its `RateLimit` fields carry: its own, or `default`, `default-2`, …
fn named(quotas: &[RateLimit]) -> Vec<(RateLimit, String)> {
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
    quotas.iter().map(name).collect()
}

/// What begins the id of a quota. A named one is shared by all that use the name; any other belongs to its handler, with
/// its limit, window and key.
fn quota_family((module, handler): Owner, spec: &RateLimit) -> String {
    match (spec.name, spec.limit) {
        (Some(name), _) => named_family(name),
        (None, limit) => {
            let requests = limit.map_or(0, |limit| limit.requests());
            format!("{module}::{handler}:{requests}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn quota_id(owner: Owner, spec: &RateLimit) -> String {
        let limit = spec.limit.expect("it has its own");
        Terms::new(&quota_family(owner, spec), limit, spec.key, "default")
            .quota
            .id
    }

    #[test]
    fn a_quota_is_its_handlers_unless_it_is_named() {
        let (a, b) = (("app", "a"), ("app", "b"));
        let quota = RateLimit::new(30, MINUTE);
        assert_eq!(quota_id(a, &quota), "app::a:30:60000ms:sliding:ip");
        assert_ne!(quota_id(a, &quota), quota_id(b, &quota));
        assert_ne!(quota_id(a, &quota), quota_id(a, &RateLimit::new(31, MINUTE)));
        let shared = quota.with_name("api");
        assert_eq!(quota_id(a, &shared), "=api:60000ms:sliding:ip");
        assert_eq!(quota_id(a, &shared), quota_id(b, &shared));
        assert_ne!(quota_id(a, &shared), quota_id(a, &shared.with_key(Key::Global)));
    }

    #[test]
    fn unnamed_quotas_are_told_apart_in_the_fields() {
        static QUOTAS: [RateLimit; 3] = [
            RateLimit::new(1, MINUTE),
            RateLimit::new(2, MINUTE).with_name("api"),
            RateLimit::new(3, MINUTE),
        ];
        let names: Vec<_> = named(&QUOTAS).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["default", "api", "default-2"]);
    }
}
