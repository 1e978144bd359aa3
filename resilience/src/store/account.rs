//! One take, whatever the algorithm: the rule it goes by, and what is counted under it.

use crate::policy::Algorithm;

use super::{Take, Taken, bucket, window};

/// The rule by which a take is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Window(window::Rule),
    Bucket(bucket::Rule),
}

/// What is stored per client and quota. What was stored by another algorithm counts as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stored {
    #[default]
    Nothing,
    Window(window::Stored),
    Bucket(bucket::Stored),
}

/// A rule and what is counted under it at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    Window(window::Rule, u64, window::Count),
    Bucket(bucket::Rule, bucket::Span),
}

impl Rule {
    /// The rule for `take`, with all numbers brought into their range: a request that costs more than there can ever be
    /// takes all there can be.
    pub(crate) fn of(take: &Take<'_>) -> Self {
        let quota = take.quota;
        let limit = quota.limit.max(1);
        let window = u64::try_from(quota.window.as_millis())
            .unwrap_or(u64::MAX)
            .clamp(1, LONGEST_WINDOW);
        match quota.algorithm {
            Algorithm::TokenBucket => {
                let burst = quota.burst.clamp(1, limit);
                Self::Bucket(bucket::Rule {
                    limit,
                    window,
                    burst,
                    cost: take.cost.clamp(1, burst),
                })
            }
            algorithm @ (Algorithm::SlidingWindow | Algorithm::FixedWindow) => Self::Window(window::Rule {
                limit: limit.into(),
                window,
                sliding: matches!(algorithm, Algorithm::SlidingWindow),
                cost: take.cost.clamp(1, limit).into(),
            }),
        }
    }
}

impl Account {
    /// What `stored` amounts to at `now`, in milliseconds.
    pub(crate) fn open(rule: Rule, stored: Stored, now: u64) -> Self {
        match (rule, stored) {
            (Rule::Window(rule), stored) => {
                let stored = match stored {
                    Stored::Window(stored) => stored,
                    _ => window::Stored::default(),
                };
                let (index, count) = rule.count(stored, now);
                Self::Window(rule, index, count)
            }
            (Rule::Bucket(rule), Stored::Bucket(stored)) => Self::Bucket(rule, rule.lacking(stored, now)),
            (Rule::Bucket(rule), _) => Self::Bucket(rule, bucket::Span::default()),
        }
    }

    /// Whether there is room for the take.
    pub(crate) fn fits(&self) -> bool {
        match self {
            Self::Window(rule, _, count) => rule.fits(count),
            Self::Bucket(rule, lacking) => rule.fits(*lacking),
        }
    }

    /// Counts the take.
    pub(crate) fn charge(&mut self) {
        match self {
            Self::Window(rule, _, count) => rule.charge(count),
            Self::Bucket(rule, lacking) => rule.charge(lacking),
        }
    }

    /// What to store at `now`.
    pub(crate) fn stored(&self, now: u64) -> Stored {
        match self {
            Self::Window(_, index, count) => Stored::Window(window::Stored {
                index: *index,
                previous: count.previous,
                current: count.current,
            }),
            Self::Bucket(rule, lacking) => Stored::Bucket(rule.stored(*lacking, now)),
        }
    }

    /// Milliseconds for which that is of use: when they run out, an empty entry says the same.
    pub(crate) fn lifetime(&self) -> u64 {
        match self {
            Self::Window(rule, _, count) => rule.lifetime(count.elapsed),
            Self::Bucket(rule, lacking) => rule.lifetime(*lacking),
        }
    }

    /// The answer of a quota that had room (`allowed`) or had none, as it is after the decision.
    pub(crate) fn taken(&self, allowed: bool) -> Taken {
        match self {
            Self::Window(rule, _, count) => rule.taken(allowed, count),
            Self::Bucket(rule, lacking) => rule.taken(allowed, *lacking),
        }
    }
}

/// 366 days in milliseconds.
const LONGEST_WINDOW: u64 = 366 * 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Quota;

    const ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];

    fn take(algorithm: Algorithm, stored: Stored, cost: u32) -> (Taken, Stored) {
        let quota = Quota {
            id: "q".to_owned(),
            limit: 10,
            window: Duration::from_secs(10),
            algorithm,
            burst: 4,
        };
        let rule = Rule::of(&Take {
            quota: &quota,
            client: "a",
            cost,
        });
        let mut account = Account::open(rule, stored, 10_000);
        let allowed = account.fits();
        if allowed {
            account.charge();
        }
        (account.taken(allowed), account.stored(10_000))
    }

    #[test]
    fn numbers_out_of_range_still_let_a_request_pass() {
        for algorithm in ALGORITHMS {
            for cost in [0, u32::MAX] {
                assert!(take(algorithm, Stored::Nothing, cost).0.allowed, "{algorithm:?} {cost}");
            }
            let (taken, all) = take(algorithm, Stored::Nothing, u32::MAX);
            assert_eq!(taken.remaining, 0);
            assert!(!take(algorithm, all, 1).0.allowed, "{algorithm:?}");
        }
    }

    #[test]
    fn what_another_algorithm_stored_counts_as_nothing() {
        let (_, window) = take(Algorithm::SlidingWindow, Stored::Nothing, 10);
        let (_, bucket) = take(Algorithm::TokenBucket, Stored::Nothing, 4);
        assert_eq!(take(Algorithm::TokenBucket, window, 1).0.remaining, 3);
        assert_eq!(take(Algorithm::SlidingWindow, bucket, 1).0.remaining, 9);
    }
}
