//! Mistakes about names that only the whole program shows.

use std::collections::BTreeMap;

use super::NamedLimits;
use crate::policy::Policy;

/// Names that nobody defines, and costs that never fit: a sentence each.
///
/// The store does not count as somebody: it may be down when the next instance starts.
pub(crate) fn mistakes(policies: &[&'static Policy], limits: &NamedLimits) -> Vec<String> {
    let mut undefined = BTreeMap::<&str, Vec<String>>::new();
    let mut mistakes = Vec::new();
    for policy in policies {
        let handler = format!("`{}::{}`", policy.module(), policy.name());
        for spec in policy.rate_limits() {
            let Some(name) = spec.name else { continue };
            match limits.defined(spec) {
                None => undefined.entry(name).or_default().push(handler.clone()),
                Some(limit) if spec.cost > limit.at_once() => mistakes.push(format!(
                    "a request to {handler} costs {}, which never fits into the quota `{name}` of {limit}",
                    spec.cost
                )),
                Some(_) => {}
            }
        }
    }
    let undefined = undefined.into_iter().map(|(name, mut handlers)| {
        handlers.sort();
        handlers.dedup();
        let stored = match limits.known(name).and_then(|named| named.in_force().limit) {
            Some(_) => " (the store does, but it may be down at the next start)",
            None => "",
        };
        format!(
            "nobody defines the quota `{name}`{stored}, which {} counts by: add `.limit(\"{name}\", …)` to the builder \
             or `[limits.{name}]` to the file of `limits_file`",
            handlers.join(" and ")
        )
    });
    undefined.chain(mistakes).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::{Algorithm, Limit, RateLimit};

    #[test]
    fn a_name_needs_somebody_who_defines_it_and_room_for_what_requests_cost() {
        static BY_NAME: [RateLimit; 1] = [RateLimit::named("api")];
        static COSTLY: [RateLimit; 1] = [RateLimit::named("api").with_cost(5)];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&BY_NAME);
        static B: Policy = Policy::new("app", "b").with_rate_limits(&COSTLY);
        let found = mistakes(&[&B, &A], &NamedLimits::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("the quota `api`, which `app::a` and `app::b` counts by"),
            "{found:?}"
        );
        let bucket = Limit::new(30, Duration::from_secs(60)).with_algorithm(Algorithm::TokenBucket);
        for (burst, expected) in [(5, 0), (4, 1)] {
            let limits = NamedLimits::new([("api".to_owned(), bucket.with_burst(burst))], None);
            let found = mistakes(&[&A, &B], &limits);
            assert_eq!(found.len(), expected, "{found:?}");
        }
    }
}
