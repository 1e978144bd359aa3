//! Policies for people to read: which guards, in which order, and what each does in an outage.

use std::{fmt, time::Duration};

use crate::{
    bound::{Bound, Quotas},
    guard::{
        concurrency::Slots,
        lockout::{BoundLockout, Lockouts, key_kind},
    },
    policy::{Algorithm, Key, Limit, LockoutKey, Mode, OnOutage},
};

/// The guards of one handler, in the order in which they run.
///
/// Its `Display` is a small table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySummary {
    module: &'static str,
    handler: &'static str,
    guards: Vec<GuardSummary>,
    deadline: Option<Duration>,
}

/// One guard of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardSummary {
    /// What it is, e.g. `rate_limit 30 in 60s by ip`.
    pub guard: String,
    /// How long it may take.
    pub deadline: Duration,
    /// What it does when it cannot tell, e.g. `fail_open`.
    pub on_outage: String,
    /// The breaker in front of what it asks; `None` if there is none of ours.
    pub breaker: Option<String>,
}

impl PolicySummary {
    pub(crate) fn new(bound: &Bound) -> Self {
        let mut guards = quotas(&bound.quotas);
        guards.extend(bound.flags.iter().map(|flag| {
            let (on_off, default) = (on_off(flag.spec.blocks_when), on_off(flag.spec.default));
            let observed = observed(flag.spec.mode);
            GuardSummary {
                guard: format!("flag {} blocks when {on_off}{observed}", flag.spec.name),
                deadline: flag.deadline,
                on_outage: match flag.spec.stale {
                    Some(stale) => format!("last value for {stale:?}, then {default}"),
                    None => format!("counts as {default}"),
                },
                breaker: Some(flag.breaker.name().to_owned()),
            }
        }));
        guards.extend(bound.auth.as_ref().map(|auth| GuardSummary {
            guard: format!("auth by {}", auth.header),
            deadline: auth.deadline,
            on_outage: OnOutage::FailClosed.as_str().to_owned(),
            breaker: Some(auth.breaker.name().to_owned()),
        }));
        guards.extend(bound.guards.iter().map(|guard| GuardSummary {
            guard: format!("guard {}", guard.guard.name()),
            deadline: guard.guard.deadline(),
            on_outage: guard.guard.on_outage().as_str().to_owned(),
            breaker: None,
        }));
        guards.extend(quotas(&bound.user_quotas));
        guards.extend(bound.lockouts.iter().flat_map(|lockouts| self::lockouts(lockouts)));
        guards.extend(bound.slots.as_ref().map(slots));
        Self {
            module: bound.module,
            handler: bound.name,
            guards,
            deadline: bound.deadline,
        }
    }

    /// The path of the module that holds the handler, or of the fn if the handler is inside one.
    #[must_use]
    pub const fn module(&self) -> &'static str {
        self.module
    }

    /// The handler's name.
    #[must_use]
    pub const fn handler(&self) -> &'static str {
        self.handler
    }

    /// Its guards, in the order in which they run.
    #[must_use]
    pub fn guards(&self) -> &[GuardSummary] {
        &self.guards
    }

    /// The budget of the handler itself; `None` is unlimited.
    #[must_use]
    pub const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }
}

impl fmt::Display for PolicySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}::{}", self.module, self.handler)?;
        for (place, guard) in self.guards.iter().enumerate() {
            let breaker = guard.breaker.as_deref().unwrap_or("-");
            writeln!(
                f,
                "  {}. {:<44} within {:<6} breaker {:<12} in an outage: {}",
                place + 1,
                guard.guard,
                format!("{:?}", guard.deadline),
                breaker,
                guard.on_outage,
            )?;
        }
        match self.deadline {
            Some(deadline) => write!(f, "  handler, within {deadline:?}"),
            None => write!(f, "  handler"),
        }
    }
}

fn quotas(quotas: &Quotas) -> Vec<GuardSummary> {
    let summary = |quota: &crate::bound::BoundQuota| {
        let spec = &quota.spec;
        let key = match spec.key {
            Key::Ip => "ip".to_owned(),
            Key::User => "user".to_owned(),
            Key::Global => "everybody".to_owned(),
            Key::Header(name) => format!("header {name}"),
            Key::Custom(key) => key.path().to_owned(),
        };
        let cost = match spec.cost {
            1 => String::new(),
            cost => format!(", cost {cost}"),
        };
        let name = spec.name.map(|name| format!(" {name}")).unwrap_or_default();
        let limit = quota.terms().map(|terms| terms.in_force);
        let algorithm = limit.map(|limit| algorithm(&limit)).unwrap_or_default();
        GuardSummary {
            guard: match limit {
                Some(limit) => format!(
                    "rate_limit{name} {} in {:?} by {key}{algorithm}{cost}{}",
                    limit.requests(),
                    limit.window(),
                    observed(spec.mode)
                ),
                None => format!("rate_limit{name}, not defined{}", observed(spec.mode)),
            },
            deadline: match spec.mode {
                Mode::Enforce => quotas.deadline,
                Mode::Observe => quota.deadline,
            },
            on_outage: match (
                limit.and_then(|limit| limit.on_outage()).unwrap_or(spec.on_outage),
                spec.local_share,
            ) {
                (OnOutage::FailLocal, share @ ..100) => format!("fail_local with {share}%"),
                (on_outage, _) => on_outage.as_str().to_owned(),
            },
            breaker: Some(quotas.breaker.name().to_owned()),
        }
    };
    quotas.all.iter().chain(&quotas.observed).map(summary).collect()
}

const fn observed(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "",
        Mode::Observe => ", observed",
    }
}

fn lockouts(lockouts: &Lockouts) -> Vec<GuardSummary> {
    let summary = |lockout: &BoundLockout| {
        let spec = &lockout.spec;
        let durations: Vec<_> = spec.durations.iter().map(|duration| format!("{duration:?}")).collect();
        let name = spec.name.map(|name| format!(" {name}")).unwrap_or_default();
        GuardSummary {
            guard: format!(
                "lockout{name} after {} by {} for {}{}",
                spec.attempts,
                key_kind(spec.key),
                durations.join(", "),
                observed(spec.mode),
            ),
            deadline: lockout.deadline,
            on_outage: spec.on_outage.as_str().to_owned(),
            breaker: Some(lockouts.breaker.name().to_owned()),
        }
    };
    // Those that need the body come last.
    let (accounts, known): (Vec<_>, Vec<_>) = lockouts
        .all
        .iter()
        .partition(|lockout| matches!(lockout.spec.key, LockoutKey::Account(_)));
    known.into_iter().chain(accounts).map(summary).collect()
}

fn slots(slots: &Slots) -> GuardSummary {
    let spec = slots.limit.config();
    let queue = match spec.queue() {
        0 => String::new(),
        queue => format!(", {queue} may wait, {}", slots.priority.as_str()),
    };
    let adaptive = if spec.is_adaptive() { ", adaptive" } else { "" };
    GuardSummary {
        guard: format!("concurrency {}{queue}{adaptive}", spec.limit()),
        deadline: if spec.queue() > 0 {
            spec.queue_timeout()
        } else {
            std::time::Duration::ZERO
        },
        on_outage: "asks nobody".to_owned(),
        breaker: None,
    }
}

fn algorithm(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::SlidingWindow => String::new(),
        Algorithm::FixedWindow => ", fixed window".to_owned(),
        Algorithm::TokenBucket => format!(", token bucket of {}", limit.bucket()),
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
