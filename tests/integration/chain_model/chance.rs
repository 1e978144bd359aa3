//! How a case is made up.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select};
use resilience::{
    BreakerChoice,
    guard::GuardOutage,
    policy::{Algorithm, Key, Mode, OnOutage},
    store::{StoreErrorKind, Taken},
};

use super::plan::{
    AuthPlan, Behaviour, Case, FLAG_NAMES, FlagPlan, GUARD_NAMES, GuardPlan, GuardSays, HandlerPlan, Installed,
    Operation, QUOTA_NAMES, RateLimitPlan, RequestPlan, Step, StorePlan,
};

pub(super) fn case() -> impl Strategy<Value = Case> {
    let policy = (
        vec(quota(), 0..=3),
        vec(flag(), 0..=2),
        option::weighted(0.7, auth()),
        vec(guard(), 0..=2),
        option::of(millis(&[5, 20])),
    );
    let runtime = (
        breakers(),
        option::of(breakers()),
        open(),
        select(&[Installed::With, Installed::Data][..]),
        any::<bool>(),
    );
    (policy, runtime, vec(step(), 1..=3)).prop_map(|((quotas, flags, auth, guards, deadline), runtime, steps)| {
        let (builders_breakers, policys_breakers, open, installed, remembers) = runtime;
        let mut case = Case {
            quotas,
            flags,
            auth,
            guards,
            deadline,
            builders_breakers,
            policys_breakers,
            open,
            installed,
            remembers,
            steps,
        };
        case.make_consistent();
        case
    })
}

impl Case {
    /// Gives each part its own name, and users' quotas the authentication that the compiler asks for.
    fn make_consistent(&mut self) {
        for (place, quota) in self.quotas.iter_mut().enumerate() {
            quota.name = quota.name.map(|_| QUOTA_NAMES[place]);
            // Two unnamed quotas of one handler are told apart by their limits.
            quota.limit += 3 * u32::try_from(place).expect("few");
        }
        for (flag, name) in self.flags.iter_mut().zip(FLAG_NAMES) {
            flag.name = name;
        }
        for (guard, name) in self.guards.iter_mut().zip(GUARD_NAMES) {
            guard.name = name;
        }
        if self.quotas.iter().any(RateLimitPlan::is_by_user) && self.auth.is_none() {
            self.auth = Some(AuthPlan {
                header: None,
                deadline: None,
            });
        }
    }
}

fn millis(of: &'static [u64]) -> impl Strategy<Value = Duration> {
    select(of).prop_map(Duration::from_millis)
}

/// Around every deadline there is: just before, exactly at, and just after.
fn delay() -> impl Strategy<Value = Duration> {
    prop_oneof![
        6 => Just(Duration::ZERO),
        5 => millis(&[1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 40]),
    ]
}

fn own_deadline() -> impl Strategy<Value = Option<Duration>> {
    option::of(millis(&[5, 8, 15, 20]))
}

fn quota() -> impl Strategy<Value = RateLimitPlan> {
    let keys = [Key::Ip, Key::Global, Key::User, Key::Header("x-tenant")];
    (
        // Each limit divides each window into whole seconds, so that no rounding depends on a millisecond.
        1..=3_u32,
        select(&[60, 3_600][..]),
        select(Vec::from(keys)),
        algorithm(),
        select(
            &[
                OnOutage::FailOpen,
                OnOutage::FailClosed,
                OnOutage::FailLocal,
                OnOutage::FailLocal,
            ][..],
        ),
        select(&[100, 100, 50, 34][..]),
        option::of(Just("named")),
        own_deadline(),
        mode(),
    )
        .prop_map(
            |(limit, seconds, key, (algorithm, burst, cost), on_outage, local_share, name, deadline, mode)| {
                RateLimitPlan {
                    limit,
                    seconds,
                    key,
                    algorithm,
                    burst,
                    cost,
                    on_outage,
                    local_share,
                    name,
                    deadline,
                    mode,
                }
            },
        )
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Enforce), 1 => Just(Mode::Observe)]
}

/// How a quota counts, and as how much a request does.
fn algorithm() -> impl Strategy<Value = (Algorithm, Option<u32>, u32)> {
    let algorithms = [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];
    let cost = prop_oneof![3 => Just(1), 1 => 2..=3_u32];
    (select(Vec::from(algorithms)), option::of(1..=3_u32), cost)
}

fn flag() -> impl Strategy<Value = FlagPlan> {
    // How long ago the requests before began, and a millisecond less.
    let stale = option::of(millis(&[299, 300, 599, 600]));
    (any::<bool>(), prop::bool::weighted(0.75), stale, own_deadline(), mode()).prop_map(
        |(default, blocks_when, stale, deadline, mode)| FlagPlan {
            name: "",
            default,
            blocks_when,
            stale,
            deadline,
            mode,
        },
    )
}

fn auth() -> impl Strategy<Value = AuthPlan> {
    let header = option::of(Just("x-model-token"));
    (header, own_deadline()).prop_map(|(header, deadline)| AuthPlan { header, deadline })
}

fn guard() -> impl Strategy<Value = GuardPlan> {
    let says = prop_oneof![
        8 => Just(GuardSays::Pass),
        1 => Just(GuardSays::Reject),
        1 => Just(GuardSays::Fail),
        1 => Just(GuardSays::Nothing),
    ];
    let on_outage = select(&[GuardOutage::FailOpen, GuardOutage::FailClosed][..]);
    (says, delay(), on_outage).prop_map(|(says, after, on_outage)| GuardPlan {
        name: "",
        says,
        after,
        on_outage,
    })
}

fn breakers() -> impl Strategy<Value = BreakerChoice> {
    select(
        &[
            BreakerChoice::Shared,
            BreakerChoice::PerOperation,
            BreakerChoice::Named("model"),
        ][..],
    )
}

/// Which breakers are open: none in most cases, since little else happens behind open ones.
fn open() -> impl Strategy<Value = Vec<Operation>> {
    prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::sample::subsequence(Operation::ALL.to_vec(), 1..=3),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (request(), store(), handler()).prop_map(|(request, store, handler)| Step {
        request,
        store,
        handler,
    })
}

fn request() -> impl Strategy<Value = RequestPlan> {
    const GOOD: &[&[u8]] = &[b"letmein"];
    const BAD: &[&[&[u8]]] = &[
        &[],
        &[b""],
        &[&[b'k'; 513]],
        &[b"letmein", b"letmein"],
        &[b"", b"letmein"],
        &[b"\xff\xfe"],
    ];
    const LONGEST: &[&[u8]] = &[&[b'k'; 512]];
    let keys = prop_oneof![8 => Just(GOOD), 1 => Just(LONGEST), 3 => select(BAD)];
    let accept = select(
        &[
            (None, false),
            (Some("application/problem+json"), true),
            (Some("application/problem+json;q=0.5, application/json;q=0.9"), false),
            (Some("text/html, application/problem+json, */*;q=0.1"), true),
            (Some("*/*"), false),
        ][..],
    );
    (keys, option::of(select(&["a", "b"][..])), accept).prop_map(|(keys, tenant, accept)| RequestPlan {
        keys,
        tenant,
        accept,
    })
}

fn store() -> impl Strategy<Value = StorePlan> {
    let identity = prop_oneof![8 => select(&[Some("ada"), Some("bob")][..]), 1 => Just(None)];
    let flag = prop_oneof![3 => Just(None), 3 => Just(Some(false)), 2 => Just(Some(true))];
    (behaviour(identity), vec(behaviour(flag), 2), behaviour(vec(taken(), 3)))
        .prop_map(|(identity, flags, take)| StorePlan { identity, flags, take })
}

fn behaviour<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Behaviour<T>> {
    let kinds = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Answered,
        StoreErrorKind::Saturated,
        StoreErrorKind::TimedOut,
    ];
    let outcome = prop_oneof![
        10 => value.prop_map(|value| Some(Ok(value))),
        2 => select(Vec::from(kinds)).prop_map(|kind| Some(Err(kind))),
        1 => Just(None),
    ];
    (outcome, delay()).prop_map(|(outcome, after)| Behaviour { outcome, after })
}

fn taken() -> impl Strategy<Value = Taken> {
    let wait = || millis(&[1, 999, 1_000, 1_001, 59_500]);
    prop_oneof![
        9 => (0..=4_u32, wait()).prop_map(|(remaining, reset)| Taken {
            allowed: true,
            remaining,
            retry_after: if remaining == 0 { reset } else { Duration::ZERO },
            reset,
        }),
        1 => (wait(), wait()).prop_map(|(retry_after, longer)| Taken {
            allowed: false,
            remaining: 0,
            retry_after,
            reset: retry_after + longer,
        }),
    ]
}

fn handler() -> impl Strategy<Value = HandlerPlan> {
    (any::<bool>(), delay()).prop_map(|(fails, after)| HandlerPlan { fails, after })
}
