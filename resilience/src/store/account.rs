//! One take, whatever the algorithm: the rule it goes by, and what is counted under it.

use std::borrow::Cow;

use crate::policy::Algorithm;

use super::{Take, Taken, bucket, log, window};

/// The rule by which a take is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Log(log::Rule),
    Window(window::Rule),
    Bucket(bucket::Rule),
}

/// What is stored per client and quota. What was stored by another algorithm counts as nothing.
///
/// A sliding window stores a log or counters, by its limit. Either is read as the other: a named quota keeps its key when
/// its limit is changed, and instances that disagree for a while must not undo each other's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stored {
    #[default]
    Nothing,
    Log(log::Stored),
    Window(window::Stored),
    Bucket(bucket::Stored),
}

/// A rule and what is counted under it at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    Log(log::Rule, log::Count),
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
            Algorithm::SlidingWindow if limit <= log::LONGEST => Self::Log(log::Rule {
                limit,
                window,
                cost: take.cost.clamp(1, limit),
            }),
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
    pub(crate) fn open(rule: Rule, stored: &Stored, now: u64) -> Self {
        match (rule, stored) {
            (Rule::Log(rule), stored) => Self::Log(rule, rule.count(&log(&rule, stored, now), now)),
            (Rule::Window(rule), stored) => {
                let (index, count) = rule.count(counters(&rule, stored, now), now);
                Self::Window(rule, index, count)
            }
            (Rule::Bucket(rule), Stored::Bucket(stored)) => Self::Bucket(rule, rule.lacking(*stored, now)),
            (Rule::Bucket(rule), _) => Self::Bucket(rule, bucket::Span::default()),
        }
    }

    /// Whether there is room for the take.
    pub(crate) fn fits(&self) -> bool {
        match self {
            Self::Log(rule, count) => rule.fits(count),
            Self::Window(rule, _, count) => rule.fits(count),
            Self::Bucket(rule, lacking) => rule.fits(*lacking),
        }
    }

    /// Counts the take.
    pub(crate) fn charge(&mut self) {
        match self {
            Self::Log(rule, count) => rule.charge(count),
            Self::Window(rule, _, count) => rule.charge(count),
            Self::Bucket(rule, lacking) => rule.charge(lacking),
        }
    }

    /// Brings `stored`, from which this was opened at `now`, up to date.
    pub(crate) fn write(&self, stored: &mut Stored, now: u64) {
        match self {
            Self::Log(rule, count) => {
                if !matches!(stored, Stored::Log(_)) {
                    *stored = Stored::Log(log(rule, stored, now).into_owned());
                }
                if let Stored::Log(log) = stored {
                    log.write(rule, count, now);
                }
            }
            Self::Window(rule, index, count) => *stored = Stored::Window(rule.stored(*index, count, now)),
            Self::Bucket(rule, lacking) => *stored = Stored::Bucket(rule.stored(*lacking, now)),
        }
    }

    /// Milliseconds for which that is of use: when they run out, an empty entry says the same.
    pub(crate) fn lifetime(&self) -> u64 {
        match self {
            Self::Log(rule, _) => rule.window,
            Self::Window(rule, _, count) => rule.lifetime(count),
            Self::Bucket(rule, lacking) => rule.lifetime(*lacking),
        }
    }

    /// The answer of a quota that had room (`allowed`) or had none, as it is after the decision.
    pub(crate) fn taken(&self, allowed: bool) -> Taken {
        match self {
            Self::Log(rule, count) => rule.taken(allowed, count),
            Self::Window(rule, _, count) => rule.taken(allowed, count),
            Self::Bucket(rule, lacking) => rule.taken(allowed, *lacking),
        }
    }
}

/// The log that `stored` holds. The counters of a higher limit are read as units that were all admitted at the last time.
fn log<'a>(rule: &log::Rule, stored: &'a Stored, now: u64) -> Cow<'a, log::Stored> {
    match stored {
        Stored::Log(log) => Cow::Borrowed(log),
        Stored::Window(stored) if stored.last != 0 => {
            let limit = rule.limit.into();
            let counting = window::Rule {
                limit,
                window: rule.window,
                sliding: true,
                cost: 1,
            };
            let (_, count) = counting.count(*stored, now);
            let units = counting.used(&count).min(limit.into());
            Cow::Owned(log::Stored::of(units as u32, stored.last.min(now)))
        }
        _ => Cow::Owned(log::Stored::default()),
    }
}

/// The counters that `stored` holds. The log of a lower limit is read as the count of the current window.
fn counters(rule: &window::Rule, stored: &Stored, now: u64) -> window::Stored {
    match stored {
        Stored::Window(stored) if (stored.last != 0) == rule.sliding => *stored,
        Stored::Log(log) if rule.sliding => {
            let counting = log::Rule {
                limit: log::LONGEST,
                window: rule.window,
                cost: 1,
            };
            window::Stored {
                index: now / rule.window,
                previous: 0,
                current: counting.count(log, now).used,
                last: log.last().unwrap_or_default().min(now),
            }
        }
        _ => window::Stored::default(),
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

    const NOW: u64 = 1_000_000;

    fn take_of(limit: u32, algorithm: Algorithm, stored: Stored, cost: u32, now: u64) -> (Taken, Stored) {
        let quota = Quota {
            id: "q".to_owned(),
            limit,
            window: Duration::from_secs(10),
            algorithm,
            burst: 4,
        };
        let rule = Rule::of(&Take {
            quota: &quota,
            client: "a",
            cost,
        });
        let mut stored = stored;
        let mut account = Account::open(rule, &stored, now);
        let allowed = account.fits();
        if allowed {
            account.charge();
            account.write(&mut stored, now);
        }
        (account.taken(allowed), stored)
    }

    fn take(algorithm: Algorithm, stored: &Stored, cost: u32) -> (Taken, Stored) {
        take_of(10, algorithm, stored.clone(), cost, NOW)
    }

    #[test]
    fn numbers_out_of_range_still_let_a_request_pass() {
        for algorithm in ALGORITHMS {
            for cost in [0, u32::MAX] {
                assert!(
                    take(algorithm, &Stored::Nothing, cost).0.allowed,
                    "{algorithm:?} {cost}"
                );
            }
            let (taken, all) = take(algorithm, &Stored::Nothing, u32::MAX);
            assert_eq!(taken.remaining, 0);
            assert!(!take(algorithm, &all, 1).0.allowed, "{algorithm:?}");
        }
    }

    #[test]
    fn what_another_algorithm_stored_counts_as_nothing() {
        for limit in [10, 200] {
            for stored_by in ALGORITHMS {
                let (_, stored) = take_of(limit, stored_by, Stored::Nothing, 4, NOW);
                for read_by in ALGORITHMS.into_iter().filter(|algorithm| *algorithm != stored_by) {
                    let full = if read_by == Algorithm::TokenBucket { 4 } else { limit };
                    let (taken, _) = take_of(limit, read_by, stored.clone(), 1, NOW);
                    assert_eq!(taken.remaining, full - 1, "{stored_by:?} read by {read_by:?}");
                }
            }
        }
    }

    #[test]
    fn a_limit_that_is_raised_over_the_line_keeps_its_count() {
        let (_, log) = take(Algorithm::SlidingWindow, &Stored::Nothing, 7);
        let (taken, counters) = take_of(200, Algorithm::SlidingWindow, log, 1, NOW + 9_999);
        assert_eq!((taken.allowed, taken.remaining), (true, 192));
        assert!(matches!(counters, Stored::Window(_)));
        let (taken, _) = take_of(200, Algorithm::SlidingWindow, counters, 1, NOW + 19_999);
        assert_eq!(taken.remaining, 199);
    }

    #[test]
    fn a_limit_that_is_lowered_over_the_line_keeps_its_count_up_to_the_limit() {
        let (_, counters) = take_of(200, Algorithm::SlidingWindow, Stored::Nothing, 150, NOW);
        let (refused, _) = take(Algorithm::SlidingWindow, &counters, 1);
        assert_eq!((refused.allowed, refused.retry_after), (false, Duration::from_secs(10)));
        let (_, counters) = take_of(200, Algorithm::SlidingWindow, Stored::Nothing, 6, NOW);
        let (taken, log) = take(Algorithm::SlidingWindow, &counters, 1);
        assert_eq!((taken.allowed, taken.remaining), (true, 3));
        assert!(matches!(log, Stored::Log(_)));
        let (taken, _) = take_of(10, Algorithm::SlidingWindow, log, 1, NOW + 10_000);
        assert_eq!(taken.remaining, 9);
    }
}
