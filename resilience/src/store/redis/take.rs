//! The limiter's script and its reply.

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::store::{
    KeyLayout, StoreError, StoreErrorKind, Take, Taken,
    account::{Account, Rule},
    bucket::Span,
    log, window,
};

use super::{
    connection::Connection,
    script::{Script, numbers, script},
};

static SCRIPT: Script = script!(front "scripts/take.lua");

/// How the script calls the algorithms.
const FIXED: u8 = 0;
const SLIDING: u8 = 1;
const BUCKET: u8 = 2;
const LOG: u8 = 3;

/// Numbers that the script returns for each quota.
const PER_QUOTA: usize = 5;

/// Takes from each quota, or from none, in one round trip.
pub(super) async fn take(
    connection: &mut Connection,
    layout: &KeyLayout,
    takes: &[Take<'_>],
    deadline: Instant,
) -> Result<Vec<Taken>, StoreError> {
    let rules: Vec<Rule> = takes.iter().map(|take| Rule::of(take)).collect();
    let reply = SCRIPT
        .run(connection, deadline, |command| {
            arguments(command, layout, takes, &rules)
        })
        .await?;
    // The token fits and the shape does not: no reply on this connection can be trusted.
    decode(reply, &rules).inspect_err(|_| connection.abandon())
}

fn arguments(command: &mut Cmd, layout: &KeyLayout, takes: &[Take<'_>], rules: &[Rule]) {
    command.arg(takes.len());
    for take in takes {
        command.arg(layout.count(take.client, &take.quota.id));
    }
    for rule in rules {
        match rule {
            Rule::Log(rule) => command
                .arg(LOG)
                .arg(rule.window)
                .arg(rule.limit - rule.cost)
                .arg(rule.cost),
            Rule::Window(rule) => command
                .arg(if rule.sliding { SLIDING } else { FIXED })
                .arg(rule.window)
                .arg(rule.limit - rule.cost)
                .arg(rule.cost),
            Rule::Bucket(rule) => {
                let (slack, step) = (rule.slack(), rule.step());
                command
                    .arg(BUCKET)
                    .arg(rule.window)
                    .arg(rule.limit)
                    .arg(slack.millis)
                    .arg(slack.parts)
                    .arg(step.millis)
                    .arg(step.parts)
            }
        };
    }
}

fn decode(reply: Value, rules: &[Rule]) -> Result<Vec<Taken>, StoreError> {
    let odd = || {
        StoreError::new(
            StoreErrorKind::Answered,
            "Redis answered the limiter's script with something else",
        )
    };
    let numbers = numbers(reply)
        .filter(|numbers| numbers.len() == PER_QUOTA * rules.len())
        .ok_or_else(odd)?;
    let (quotas, _) = numbers.as_chunks::<PER_QUOTA>();
    let admitted = quotas.iter().all(|[fits, ..]| *fits == 1);
    let taken = rules.iter().zip(quotas).map(|(rule, &[fits, ref counted @ ..])| {
        let mut account = account(*rule, counted);
        if admitted {
            account.charge();
        }
        account.taken(fits == 1)
    });
    Ok(taken.collect())
}

fn account(rule: Rule, &[first, second, third, fourth]: &[u64; 4]) -> Account {
    match rule {
        Rule::Log(rule) => {
            let count = log::Count::new(saturating(first), second.min(rule.window), third.min(rule.window));
            Account::Log(rule, count)
        }
        Rule::Window(rule) => {
            let count = window::Count {
                previous: saturating(first),
                current: saturating(second),
                elapsed: third.min(rule.window - 1),
                idle: fourth.min(rule.window),
            };
            // Which window it is matters to what is stored alone.
            Account::Window(rule, 0, count)
        }
        Rule::Bucket(rule) => {
            let lacking = Span {
                millis: first.min(2 * rule.window),
                parts: saturating(second).min(rule.limit - 1),
            };
            Account::Bucket(rule, lacking)
        }
    }
}

/// Counts beyond any limit are all the same.
fn saturating(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{policy::Algorithm, store::Quota};

    fn rule_of(algorithm: Algorithm, limit: u32) -> Rule {
        rule_for(algorithm, limit, 1)
    }

    fn rule_of_cost(limit: u32, cost: u32) -> Rule {
        rule_for(Algorithm::SlidingWindow, limit, cost)
    }

    fn rule_for(algorithm: Algorithm, limit: u32, cost: u32) -> Rule {
        let quota = Quota {
            id: "q".to_owned(),
            limit,
            window: Duration::from_secs(60),
            algorithm,
            burst: limit,
        };
        Rule::of(&Take {
            quota: &quota,
            client: "a",
            cost,
        })
    }

    fn rule(limit: u32) -> Rule {
        rule_of(Algorithm::SlidingWindow, limit)
    }

    fn reply(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn an_admitted_request_is_counted_in_every_quota() {
        let fixed = rule_of(Algorithm::FixedWindow, 10);
        let taken = decode(
            reply(&[1, 4, 59_000, 0, 0, 1, 9, 59_000, 20_000, 0, 1, 0, 4, 1_000, 0]),
            &[rule(10), rule(10), fixed],
        )
        .unwrap();
        assert_eq!((taken[0].allowed, taken[0].remaining), (true, 5));
        assert_eq!((taken[0].retry_after, taken[0].reset.as_secs()), (Duration::ZERO, 59));
        assert_eq!((taken[1].allowed, taken[1].remaining), (true, 0));
        assert_eq!((taken[1].retry_after.as_secs(), taken[1].reset.as_secs()), (20, 59));
        assert_eq!((taken[2].remaining, taken[2].reset.as_secs()), (5, 59));
    }

    #[test]
    fn a_refused_request_is_counted_in_none() {
        let taken = decode(
            reply(&[1, 0, 4, 1_000, 1_000, 0, 0, 200, 2_000, 500]),
            &[rule(200), rule(200)],
        )
        .unwrap();
        assert_eq!((taken[0].allowed, taken[0].remaining), (true, 196));
        assert_eq!(taken[0].retry_after, Duration::ZERO);
        assert_eq!((taken[1].allowed, taken[1].remaining), (false, 0));
        assert_eq!(taken[1].retry_after, Duration::from_millis(58_300));
    }

    #[test]
    fn no_wait_is_longer_than_a_window_without_an_admitted_request() {
        let taken = decode(reply(&[0, 0, 200, 2_000, 2_000]), &[rule_of_cost(200, 200)]).unwrap();
        assert_eq!(taken[0].retry_after, Duration::from_secs(58));
    }

    #[test]
    fn a_bucket_lacks_what_was_taken_from_it() {
        let bucket = rule_of(Algorithm::TokenBucket, 10);
        let taken = decode(reply(&[1, 6_000, 0, 0, 0, 1, 4, 1_000, 0, 0]), &[bucket, rule(10)]).unwrap();
        assert_eq!((taken[0].allowed, taken[0].remaining), (true, 8));
        assert_eq!(taken[0].reset, Duration::from_secs(12));
        assert_eq!(taken[1].remaining, 5);
    }

    #[test]
    fn a_refusal_always_names_a_wait() {
        // As by arithmetic that has lost a bit: there would be room.
        for (limit, said) in [(10, [0, 4, 1_000, 0, 0]), (200, [0, 0, 4, 1_000, 0])] {
            let taken = decode(reply(&said), &[rule(limit)]).unwrap();
            assert_eq!(taken[0].retry_after, Duration::from_millis(1));
            assert_eq!(taken[0].remaining, 0);
        }
    }

    #[test]
    fn odd_replies_are_no_outage() {
        for odd in [
            Value::Nil,
            Value::Okay,
            reply(&[]),
            reply(&[1, 2, 3]),
            reply(&[1, 0, 4, -1, 0]),
            reply(&[1; 10]),
        ] {
            let error = decode(odd, &[rule(10)]).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Answered);
        }
    }

    #[test]
    fn counts_beyond_measure_overflow_nothing() {
        for rule in [rule(10), rule(200), rule_of(Algorithm::TokenBucket, 10)] {
            for fits in [0, 1] {
                let taken = decode(reply(&[fits, i64::MAX, i64::MAX, i64::MAX, i64::MAX]), &[rule]).unwrap();
                assert_eq!(taken[0].allowed, fits == 1);
            }
        }
    }
}
