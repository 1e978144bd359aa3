//! Mistakes about names that only the whole program shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::NamedLimits;
use crate::policy::Policy;

/// A quota that handlers use by its name, and that has no definition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndefinedLimit {
    /// The quota's name.
    pub name: String,
    /// The handlers that use it, by their paths, sorted.
    pub handlers: Vec<String>,
}

/// `` `api`, used by `app::search` and `app::export` ``.
impl fmt::Display for UndefinedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers: Vec<_> = self.handlers.iter().map(|handler| format!("`{handler}`")).collect();
        write!(f, "`{}`, used by {}", self.name, handlers.join(" and "))
    }
}

/// Quotas that no attribute, builder or file defines, sorted by name.
///
/// The store does not count: it may be down when the next instance starts.
pub(crate) fn undefined(policies: &[&'static Policy], limits: &NamedLimits) -> Vec<UndefinedLimit> {
    let mut undefined = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut defined = BTreeSet::new();
    for policy in policies {
        for spec in policy.rate_limits() {
            let Some(name) = spec.name else { continue };
            if limits.defined(spec).is_some() {
                defined.insert(name);
            } else {
                undefined.entry(name).or_default().insert(policy.path());
            }
        }
    }
    undefined.retain(|name, _| !defined.contains(name));
    undefined
        .into_iter()
        .map(|(name, handlers)| UndefinedLimit {
            name: name.to_owned(),
            handlers: handlers.into_iter().collect(),
        })
        .collect()
}

/// Costs that never fit into the quota of their name: a sentence each.
pub(crate) fn mistakes(policies: &[&'static Policy], limits: &NamedLimits) -> Vec<String> {
    let mut mistakes = Vec::new();
    for policy in policies {
        for spec in policy.rate_limits() {
            let (Some(name), Some(limit)) = (spec.name, limits.defined(spec)) else {
                continue;
            };
            if spec.cost > limit.at_once() {
                mistakes.push(format!(
                    "a request to `{}` costs {}, which never fits into the quota `{name}` of {limit}",
                    policy.path(),
                    spec.cost
                ));
            }
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::{Algorithm, Limit, RateLimit};

    #[test]
    fn a_name_needs_a_definition_and_room_for_the_cost() {
        static BY_NAME: [RateLimit; 1] = [RateLimit::named("api")];
        static COSTLY: [RateLimit; 1] = [RateLimit::named("api").with_cost(5)];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&BY_NAME);
        static B: Policy = Policy::new("app", "b").with_rate_limits(&COSTLY);
        let found = undefined(&[&B, &A, &B], &NamedLimits::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].to_string(), "`api`, used by `app::a` and `app::b`");
        let bucket = Limit::new(30, Duration::from_secs(60)).with_algorithm(Algorithm::TokenBucket);
        for (burst, expected) in [(5, 0), (4, 1)] {
            let limits = NamedLimits::new([("api".to_owned(), bucket.with_burst(burst))], None);
            assert_eq!(undefined(&[&A, &B], &limits), []);
            let found = mistakes(&[&A, &B], &limits);
            assert_eq!(found.len(), expected, "{found:?}");
        }
    }

    #[test]
    fn the_numbers_of_another_attribute_define_a_name() {
        static BY_NAME: [RateLimit; 2] = [RateLimit::named("api"), RateLimit::named("daily")];
        static NUMBERS: [RateLimit; 1] = [RateLimit::new(30, Duration::from_secs(60)).with_name("api")];
        static A: Policy = Policy::new("app", "a").with_rate_limits(&BY_NAME);
        static B: Policy = Policy::new("app", "b").with_rate_limits(&NUMBERS);
        let found = undefined(&[&A, &B], &NamedLimits::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "daily");
    }
}
