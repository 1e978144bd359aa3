//! All policies of the program, known since link time.

use std::collections::{HashMap, HashSet};

use crate::{
    guard::lockout::key_kind,
    policy::{Lockout, Policy, RateLimit},
};

/// A policy that registered itself.
#[derive(Debug)]
pub struct Registered(pub &'static Policy);

inventory::collect!(Registered);

/// All of them, each once: a generic handler's policy is one static, whatever it is instantiated with.
pub(crate) fn policies() -> impl Iterator<Item = &'static Policy> {
    inventory::iter::<Registered>().map(|registered| registered.0)
}

/// What is wrong among these policies, a sentence each.
pub(crate) fn mistakes(policies: &[&'static Policy], own_authenticator: bool) -> Vec<String> {
    let mut mistakes = Vec::new();
    let mut named: HashMap<&str, (&RateLimit, String)> = HashMap::new();
    let mut lockouts: HashMap<&str, (&Lockout, String)> = HashMap::new();
    let mut handlers = HashSet::new();
    for policy in policies {
        let handler = policy.path();
        for limit in policy.rate_limits() {
            let Some(name) = limit.name else { continue };
            let (first, by) = named.entry(name).or_insert_with(|| (limit, handler.clone()));
            // The cost is each handler's own, and the numbers may be somebody else's.
            let same_numbers = match (&first.limit, &limit.limit) {
                (Some(one), Some(other)) => one.counts_as(other),
                _ => true,
            };
            let same = first.key == limit.key && same_numbers;
            if first.limit.is_none() && same {
                (*first, *by) = (limit, handler.clone());
            }
            if !same {
                mistakes.push(format!(
                    "`{handler}` and `{by}` share the quota `{name}`, but disagree on its limit, window, key, algorithm or burst"
                ));
            }
        }
        for lockout in policy.lockouts() {
            let Some(name) = lockout.name else { continue };
            let (first, by) = lockouts.entry(name).or_insert_with(|| (lockout, handler.clone()));
            let tally = |lockout: &Lockout| (lockout.attempts, lockout.durations, key_kind(lockout.key));
            if tally(first) != tally(lockout) {
                mistakes.push(format!(
                    "`{handler}` and `{by}` share the lockout `{name}`, but disagree on its attempts, durations or key"
                ));
            }
        }
        if own_authenticator && let Some(header) = policy.auth().and_then(|auth| auth.header) {
            mistakes.push(format!(
                "`{handler}` reads its credential from `{header}`, but the installed authenticator reads what it likes"
            ));
        }
        let unnamed = policy.rate_limits().iter().any(|limit| limit.name.is_none())
            || policy.lockouts().iter().any(|lockout| lockout.name.is_none());
        if unnamed && !handlers.insert(handler.clone()) {
            mistakes.push(format!(
                "two handlers in one fn or module are called `{handler}` and share their unnamed quotas and lockouts: rename \
                 one, or name those"
            ));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::{Algorithm, Auth, LockoutKey, OnOutage};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn one_name_is_one_quota() {
        static THIRTY: [RateLimit; 1] = [RateLimit::new(30, MINUTE).with_name("api")];
        static FORTY: [RateLimit; 1] = [RateLimit::new(40, MINUTE).with_name("api")];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&THIRTY);
        static B: Policy = Policy::new("app", "b").with_rate_limits(&THIRTY);
        static C: Policy = Policy::new("app", "c").with_rate_limits(&FORTY);
        static COSTLY: [RateLimit; 1] = [RateLimit::new(30, MINUTE).with_name("api").with_cost(5)];
        static D: Policy = Policy::new("app", "d").with_rate_limits(&COSTLY);
        assert_eq!(mistakes(&[&A, &B, &D], false), Vec::<String>::new());
        let found = mistakes(&[&A, &B, &C], false);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("`app::c` and `app::a` share the quota `api`"),
            "{found:?}"
        );
    }

    #[test]
    fn one_name_is_one_lockout() {
        const HOUR: &[Duration] = &[Duration::from_secs(3600)];
        const LOCKOUT: Lockout = Lockout::new(5, HOUR, LockoutKey::Ip).with_name("login");
        static FIVE: [Lockout; 1] = [LOCKOUT];
        static OPEN: [Lockout; 1] = [LOCKOUT.with_on_outage(OnOutage::FailOpen)];
        static SIX: [Lockout; 1] = [Lockout::new(6, HOUR, LockoutKey::Ip).with_name("login")];
        static A: Policy = Policy::new("app", "a").with_lockouts(&FIVE);
        static B: Policy = Policy::new("app", "b").with_lockouts(&OPEN);
        static C: Policy = Policy::new("app", "c").with_lockouts(&SIX);
        assert_eq!(mistakes(&[&A, &B], false), Vec::<String>::new());
        let found = mistakes(&[&A, &B, &C], false);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("`app::c` and `app::a` share the lockout `login`"),
            "{found:?}"
        );
    }

    #[test]
    fn buckets_of_one_name_are_of_one_size() {
        const BUCKET: RateLimit = RateLimit::new(30, MINUTE)
            .with_name("api")
            .with_algorithm(Algorithm::TokenBucket);
        static FULL: [RateLimit; 1] = [BUCKET];
        static SAME: [RateLimit; 1] = [BUCKET.with_burst(30)];
        static SMALL: [RateLimit; 1] = [BUCKET.with_burst(5)];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&FULL);
        static B: Policy = Policy::new("app", "b").with_rate_limits(&SAME);
        static C: Policy = Policy::new("app", "c").with_rate_limits(&SMALL);
        assert_eq!(mistakes(&[&A, &B], false), Vec::<String>::new());
        assert_eq!(mistakes(&[&A, &C], false).len(), 1);
    }

    #[test]
    fn unnamed_quotas_need_a_handler_of_their_own() {
        static QUOTA: [RateLimit; 1] = [RateLimit::new(30, MINUTE)];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&QUOTA);
        static B: Policy = Policy::new("app", "a").with_rate_limits(&QUOTA);
        static ELSEWHERE: Policy = Policy::new("app", "a")
            .with_rate_limits(&QUOTA)
            .with_marker(|| "app::outer::_::M");
        assert_eq!(mistakes(&[&A, &B], false).len(), 1);
        assert_eq!(mistakes(&[&A, &ELSEWHERE], false), Vec::<String>::new());
    }

    #[test]
    fn a_header_that_nobody_reads_is_a_mistake() {
        static A: Policy = Policy::new("app", "a").with_auth(Auth::fail_closed().with_header("x-token"));
        assert_eq!(mistakes(&[&A], false), Vec::<String>::new());
        assert_eq!(mistakes(&[&A], true).len(), 1);
    }
}
