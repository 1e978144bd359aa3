use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;

use super::*;
use crate::{
    args::entries,
    model::{LockoutKey, Mode},
};

fn parse(attribute: TokenStream) -> (Policy, Vec<String>) {
    let mut errors = Errors::default();
    let policy = Policy::parse(entries(attribute, &mut errors), &mut errors);
    (policy, errors.messages())
}

#[test]
fn short_forms_carry_the_defaults() {
    let (policy, errors) = parse(quote!(
        rate_limit(30, 60),
        flag("checkout", default = false),
        auth = "fail_closed"
    ));
    assert!(errors.is_empty(), "{errors:?}");
    let quota = &policy.rate_limits[0];
    let numbers = quota.numbers.as_ref().unwrap();
    assert_eq!((numbers.limit.get(), numbers.window), (30, Duration::from_secs(60)));
    assert_eq!((&quota.key, &quota.name, quota.deadline), (&Key::Ip, &None, None));
    assert_eq!(numbers.algorithm, Algorithm::SlidingWindow);
    assert_eq!((numbers.burst, quota.cost), (None, None));
    assert!(matches!(quota.on_outage, OnOutage::Open));
    let flag = &policy.flags[0];
    assert_eq!(
        (flag.name.as_str(), flag.default, flag.blocks_when),
        ("checkout", false, true)
    );
    assert_eq!((flag.stale, flag.deadline), (None, None));
    assert!(
        policy
            .auth
            .is_some_and(|auth| auth.header.is_none() && auth.deadline.is_none())
    );
    assert!(policy.deadline.is_none() && policy.breaker.is_none() && policy.guards.is_empty());
}

#[test]
fn long_forms_carry_what_was_written() {
    let (policy, errors) = parse(quote!(
        rate_limit(
            key = header("X-Tenant"),
            1_000,
            "1d",
            algorithm = "token_bucket",
            burst = 100,
            cost = 5,
            on_outage = "fail_local",
            local_share = "25%",
            name = "daily",
            deadline = "80ms",
            mode = "observe"
        ),
        rate_limit(30, 60, key = keys::device, mode = "enforce"),
        flag(
            "beta",
            blocks_when = "off",
            default = true,
            stale = "30s",
            deadline = "100ms",
            mode = "observe"
        ),
        auth("fail_closed", header = "X-Api-Key", deadline = "150ms"),
        breaker = "payments",
        deadline = "2s",
        guard(one::A),
        guard(two::B::<u8, u16>::C),
    ));
    assert!(errors.is_empty(), "{errors:?}");
    let quota = &policy.rate_limits[0];
    let numbers = quota.numbers.as_ref().unwrap();
    assert_eq!(
        (numbers.limit.get(), numbers.window),
        (1000, Duration::from_secs(86_400))
    );
    assert!(matches!(&quota.key, Key::Header(name) if name.as_str() == "x-tenant"));
    assert_eq!(numbers.algorithm, Algorithm::TokenBucket);
    assert_eq!(
        (numbers.burst.map(NonZeroU32::get), quota.cost.map(NonZeroU32::get)),
        (Some(100), Some(5))
    );
    assert!(matches!(quota.on_outage, OnOutage::Local));
    assert_eq!((quota.local_share, quota.mode), (Some(25), Mode::Observe));
    let by_fn = &policy.rate_limits[1];
    assert!(matches!(&by_fn.key, Key::Custom(key) if key.written == "keys::device"));
    assert_eq!((by_fn.local_share, by_fn.mode), (None, Mode::Enforce));
    assert_eq!(policy.flags[0].mode, Mode::Observe);
    assert_eq!(quota.name.as_ref().map(|name| name.as_str()), Some("daily"));
    assert_eq!(quota.deadline, Some(Duration::from_millis(80)));
    let flag = &policy.flags[0];
    assert_eq!((flag.default, flag.blocks_when), (true, false));
    assert_eq!(
        (flag.stale, flag.deadline),
        (Some(Duration::from_secs(30)), Some(Duration::from_millis(100)))
    );
    let auth = policy.auth.unwrap();
    assert_eq!(auth.header.as_ref().map(|name| name.as_str()), Some("x-api-key"));
    assert_eq!(auth.deadline, Some(Duration::from_millis(150)));
    assert!(matches!(policy.breaker, Some(Breaker::Named(name)) if name.as_str() == "payments"));
    assert_eq!(policy.deadline, Some(Duration::from_secs(2)));
    assert_eq!(policy.guards.len(), 2);
}

#[test]
fn a_guard_with_a_mistake_still_counts_as_written() {
    let (policy, errors) = parse(quote!(auth = "fail_open", rate_limit(0, 60, key = user)));
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(policy.auth.is_some());
    assert!(policy.rate_limits.is_empty());
    assert_eq!(policy.user_keys.len(), 1);
}

#[test]
fn a_mistake_elsewhere_says_nothing_about_burst_and_cost() {
    for attribute in [
        quote!(rate_limit(0, 60, cost = 50)),
        quote!(rate_limit(30, 60, algorithm = "leaky_bucket", burst = 5)),
        quote!(rate_limit(30, 60, algorithm("token_bucket"), burst = 5)),
        quote!(rate_limit(30, 60, algorithm = "token_bucket", burst = 0, cost = 5)),
    ] {
        let (_, errors) = parse(attribute);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}

#[test]
fn a_mistake_does_not_pass_for_a_repetition() {
    let (policy, errors) = parse(quote!(
        rate_limit(30, 60),
        rate_limit(30, 60, key = usr),
        rate_limit(30, 60, name = "")
    ));
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(policy.rate_limits.len(), 1);
}

#[test]
fn a_lockout_carries_what_was_written() {
    let (policy, errors) = parse(quote!(
        lockout(5, "15m", key = ip),
        lockout(
            3,
            "1m, 5m",
            key = account("json:/user/na~1me"),
            on_outage = "fail_local",
            name = "login",
            deadline = "50ms",
            mode = "observe"
        ),
        lockout(5, 900, key = account("form:username")),
        lockout(5, 900, key = keys::device),
    ));
    assert!(errors.is_empty(), "{errors:?}");
    let [by_ip, by_json, by_form, by_fn] = &policy.lockouts[..] else {
        panic!("{:?}", policy.lockouts)
    };
    assert_eq!((by_ip.attempts.get(), &by_ip.key), (5, &LockoutKey::Ip));
    assert_eq!(by_ip.durations, [Duration::from_secs(900)]);
    assert!(matches!(by_ip.on_outage, OnOutage::Closed) && by_ip.mode == Mode::Enforce);
    assert_eq!(by_json.key, LockoutKey::Json("/user/na~1me".to_owned()));
    assert_eq!(by_json.durations, [Duration::from_secs(60), Duration::from_secs(300)]);
    assert!(matches!(by_json.on_outage, OnOutage::Local) && by_json.mode == Mode::Observe);
    assert_eq!(by_json.name.as_ref().map(|name| name.as_str()), Some("login"));
    assert_eq!(by_json.deadline, Some(Duration::from_millis(50)));
    assert_eq!(by_form.key, LockoutKey::Form("username".to_owned()));
    assert!(matches!(&by_fn.key, LockoutKey::Custom(key) if key.written == "keys::device"));
}

#[test]
fn a_text_alone_is_the_name_of_a_quota() {
    let (policy, errors) = parse(quote!(
        auth = "fail_closed",
        rate_limit("api"),
        rate_limit(
            "costly",
            key = user,
            cost = 5,
            on_outage = "fail_closed",
            deadline = "50ms"
        )
    ));
    assert!(errors.is_empty(), "{errors:?}");
    let [api, costly] = &policy.rate_limits[..] else {
        panic!("two quotas")
    };
    assert!(api.numbers.is_none() && costly.numbers.is_none());
    assert_eq!(api.name.as_ref().map(|name| name.as_str()), Some("api"));
    assert_eq!((&costly.key, costly.cost.map(NonZeroU32::get)), (&Key::User, Some(5)));
}

#[test]
fn a_number_in_quotes_is_no_name() {
    let (_, errors) = parse(quote!(rate_limit("30")));
    assert!(
        errors.iter().any(|error| error.contains("without quotes")),
        "{errors:?}"
    );
}
