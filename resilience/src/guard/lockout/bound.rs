//! Lockouts bound to a runtime: their tallies in the store, and which of them are asked in one call.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use super::account::Place;
use crate::{
    observe::{Complaints, Tally},
    policy::{AccountField, Lockout, LockoutKey, Mode, Policy},
    runtime::Settings,
    store,
    store_breaker::StoreBreaker,
};

/// The lockouts of one handler.
#[derive(Debug)]
pub(crate) struct Lockouts {
    pub(crate) all: Vec<BoundLockout>,
    /// Those whose keys are known before the body is read.
    pub(super) known: Vec<Call>,
    /// Those by accounts, which the body names.
    pub(super) accounts: Vec<Call>,
    /// The handler's path: part of the origin of its attempts. A name that handlers share does not make them one.
    pub(super) path: String,
    pub(crate) breaker: Arc<StoreBreaker>,
    /// Bounds the call that settles: the longest of theirs, since no answer of theirs waits for it any more.
    pub(super) settle_deadline: Duration,
    pub(super) complaints: Complaints,
}

#[derive(Debug)]
pub(crate) struct BoundLockout {
    pub(crate) spec: Lockout,
    pub(crate) lockout: store::Lockout,
    pub(crate) deadline: Duration,
    /// Where the body names the account; `None` for any other key.
    pub(super) place: Option<Place>,
    pub(crate) tally: Tally,
}

/// Lockouts that are asked in one call of the store, all or none: those of a stage that decide, or one that observes.
#[derive(Debug)]
pub(super) struct Call {
    /// Their places among all.
    pub(super) lockouts: Vec<usize>,
    /// The shortest deadline is everybody's.
    pub(super) deadline: Duration,
    pub(super) mode: Mode,
}

impl Lockouts {
    /// `None` for a handler without any.
    pub(crate) fn new(policy: &Policy, settings: &Settings, breaker: Arc<StoreBreaker>) -> Option<Arc<Self>> {
        let specs = policy.lockouts();
        let all: Vec<_> = specs
            .iter()
            .map(|&spec| BoundLockout {
                lockout: store::Lockout {
                    id: id(policy, &spec),
                    attempts: spec.attempts,
                    durations: spec.durations.to_vec(),
                },
                deadline: spec.deadline.unwrap_or(settings.lockout_deadline),
                place: match spec.key {
                    LockoutKey::Account(field) => Some(Place::new(field)),
                    _ => None,
                },
                spec,
                tally: Tally::default(),
            })
            .collect();
        let (accounts, known): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(|&index| all[index].place.is_some());
        let settle_deadline = all.iter().map(|lockout| lockout.deadline).max()?;
        Some(Arc::new(Self {
            known: calls(&all, known),
            accounts: calls(&all, accounts),
            path: format!("{}::{}", policy.module(), policy.name()),
            all,
            breaker,
            settle_deadline,
            complaints: Complaints::default(),
        }))
    }
}

/// Those that decide together, and first; each that observes by itself, so that it stands in nobody's way.
fn calls(all: &[BoundLockout], lockouts: Vec<usize>) -> Vec<Call> {
    let (deciding, observing): (Vec<_>, Vec<_>) = lockouts
        .into_iter()
        .partition(|&index| all[index].spec.mode == Mode::Enforce);
    let deciding = (!deciding.is_empty()).then_some((deciding, Mode::Enforce));
    let observing = observing.into_iter().map(|index| (vec![index], Mode::Observe));
    let call = |(lockouts, mode): (Vec<usize>, Mode)| Call {
        deadline: lockouts
            .iter()
            .map(|&index| all[index].deadline)
            .min()
            .unwrap_or_default(),
        lockouts,
        mode,
    };
    deciding.into_iter().chain(observing).map(call).collect()
}

/// Tells the lockout's tallies from all others in the store. A named one is shared by all that use the name, with the same
/// numbers, since others would cut its history; any other belongs to its handler.
fn id(policy: &Policy, spec: &Lockout) -> String {
    let mut id = match spec.name {
        Some(name) => format!("={name}:{}", spec.attempts),
        None => format!("{}:{}", policy.path(), spec.attempts),
    };
    for (place, duration) in spec.durations.iter().enumerate() {
        let sign = if place == 0 { ':' } else { ',' };
        write!(id, "{sign}{}ms", duration.as_millis()).expect("a String takes all");
    }
    id.push(':');
    id.push_str(key_kind(spec.key));
    if spec.name.is_none()
        && let LockoutKey::Account(field) = spec.key
    {
        // One handler may ask for two accounts. Handlers that share a name mean one account, wherever it stands.
        let (AccountField::Json(place) | AccountField::Form(place)) = field;
        let sort = if matches!(field, AccountField::Json(_)) {
            "json"
        } else {
            "form"
        };
        write!(id, ":{sort}:{place}").expect("a String takes all");
    }
    id
}

/// Who has a tally, in a word; of a fn of the user's own its path.
pub(crate) const fn key_kind(key: LockoutKey) -> &'static str {
    match key {
        LockoutKey::Ip => "ip",
        LockoutKey::User => "user",
        LockoutKey::Account(_) => "account",
        LockoutKey::Custom(key) => key.path(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &[Duration] = &[Duration::from_secs(60), Duration::from_secs(900)];
    const ACCOUNT: LockoutKey = LockoutKey::Account(AccountField::Json("/username"));

    #[test]
    fn a_lockout_is_its_handlers_unless_it_is_named() {
        let (a, b) = (Policy::new("app", "a"), Policy::new("app", "b"));
        let lockout = Lockout::new(5, LOCKS, LockoutKey::Ip);
        assert_eq!(id(&a, &lockout), "app::a:5:60000ms,900000ms:ip");
        assert_ne!(id(&a, &lockout), id(&b, &lockout));
        let shared = lockout.with_name("login");
        assert_eq!(id(&a, &shared), "=login:5:60000ms,900000ms:ip");
        assert_eq!(id(&a, &shared), id(&b, &shared));
    }

    #[test]
    fn an_account_is_the_same_wherever_it_stands_if_the_lockout_is_named() {
        let policy = Policy::new("app", "a");
        let json = Lockout::new(5, LOCKS, ACCOUNT);
        let form = Lockout::new(5, LOCKS, LockoutKey::Account(AccountField::Form("username")));
        assert_eq!(id(&policy, &json), "app::a:5:60000ms,900000ms:account:json:/username");
        assert_ne!(id(&policy, &json), id(&policy, &form));
        assert_eq!(
            id(&policy, &json.with_name("login")),
            id(&policy, &form.with_name("login"))
        );
    }

    #[test]
    fn lockouts_that_decide_are_asked_together_and_observers_alone() {
        let bound = |spec: Lockout| BoundLockout {
            lockout: store::Lockout {
                id: String::new(),
                attempts: spec.attempts,
                durations: spec.durations.to_vec(),
            },
            deadline: Duration::from_millis(spec.attempts.into()),
            place: None,
            spec,
            tally: Tally::default(),
        };
        let observed = |attempts| Lockout::new(attempts, LOCKS, LockoutKey::Ip).with_mode(Mode::Observe);
        let all = [
            bound(observed(4)),
            bound(Lockout::new(3, LOCKS, LockoutKey::User)),
            bound(observed(2)),
            bound(Lockout::new(1, LOCKS, LockoutKey::Ip)),
        ];
        let calls: Vec<_> = calls(&all, vec![0, 1, 2, 3])
            .into_iter()
            .map(|call| (call.lockouts, call.deadline.as_millis(), call.mode))
            .collect();
        assert_eq!(
            calls,
            [
                (vec![1, 3], 1, Mode::Enforce),
                (vec![0], 4, Mode::Observe),
                (vec![2], 2, Mode::Observe)
            ]
        );
    }
}
