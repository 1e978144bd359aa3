//! Stacks of layers against a plain model that walks through the same script on paper.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use tokio::time::{Instant, sleep};

use crate::{
    Algorithm, Limit,
    breaker::{BreakerConfig, CircuitBreaker, Outcome},
    concurrency::{ConcurrencyConfig, ConcurrencyLimit},
    deadline,
    pipeline::{
        Builder, Classify, Layer, Pipeline, PipelineError, RateLimiter, Rejections, Retry, RetryBudget, Stack, Verdict,
    },
};

/// Milliseconds since the test began.
type Millis = u64;

const OPEN_FOR: Millis = 40;
const SAVED_RETRIES: u32 = 3;
const LONGEST_RETRY_AFTER: Millis = 60;
const FALLBACK: u32 = 1_000;

/// What one attempt does.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    latency: Millis,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Value(u32),
    /// An error that is retried after this wait.
    Again(Millis),
    /// An error that says nothing about the dependency and is final.
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Deadline,
    Retry,
    Breaker,
    RateLimit,
    Bulkhead,
    Fallback,
}

/// One number for each layer, in order: its milliseconds, retries, failures or calls.
type Numbers = [u32; 6];

/// What came out, by name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    Value(u32),
    Error(Answer),
    Rejected(&'static str),
}

/// The classifier under which an error says itself what it is.
#[derive(Clone)]
struct Scripted;

impl Classify<u32, Answer> for Scripted {
    fn classify(&self, answer: Result<&u32, &Answer>) -> Verdict {
        match answer {
            Ok(_) => Verdict::success(),
            Err(Answer::Again(wait)) => Verdict::failure()
                .retryable()
                .with_retry_after(Duration::from_millis(*wait)),
            Err(_) => Verdict::neutral(),
        }
    }
}

/// The layers' state on paper.
struct Model {
    kinds: Vec<Kind>,
    numbers: Numbers,
    script: Vec<Attempt>,
    attempts: usize,
    circuits: [Circuit; 6],
    taken: [u32; 6],
    retries: [u32; 6],
}

#[derive(Clone, Copy, Default)]
struct Circuit {
    failures: u32,
    open_until: Option<Millis>,
    half_open: bool,
}

/// When, and what; `None` if the budget around it cut it off.
type End = (Millis, Option<Ended>);

impl Model {
    fn run(&mut self, depth: usize, now: Millis, budget: Option<Millis>) -> End {
        let Some(kind) = self.kinds.get(depth).copied() else {
            return self.attempt(now, budget);
        };
        let number = self.numbers[depth];
        let is_spent = |at: Millis| budget.is_some_and(|end| at >= end);
        match kind {
            Kind::Deadline if is_spent(now) => (now, Some(Ended::Rejected("timeout"))),
            Kind::Deadline => {
                let own = now + Millis::from(number);
                let end = budget.map_or(own, |outer| outer.min(own));
                match self.run(depth + 1, now, Some(end)) {
                    (_, None) => (end, Some(Ended::Rejected("timeout"))),
                    ended => ended,
                }
            }
            Kind::Retry => self.retry(depth, now, budget),
            Kind::Breaker => {
                let circuit = &mut self.circuits[depth];
                if let Some(until) = circuit.open_until {
                    if now < until {
                        return (now, Some(Ended::Rejected("circuit_open")));
                    }
                    circuit.open_until = None;
                    circuit.half_open = true;
                }
                let (at, result) = self.run(depth + 1, now, budget);
                let outcome = result.map_or(Outcome::Neutral, |result| outcome(result, is_spent(at)));
                let circuit = &mut self.circuits[depth];
                match outcome {
                    Outcome::Neutral => {}
                    Outcome::Success => *circuit = Circuit::default(),
                    Outcome::Failure => {
                        circuit.failures += 1;
                        if circuit.half_open || circuit.failures >= number {
                            *circuit = Circuit {
                                open_until: Some(at + OPEN_FOR),
                                ..Circuit::default()
                            };
                        }
                    }
                }
                (at, result)
            }
            Kind::RateLimit if self.taken[depth] == number => (now, Some(Ended::Rejected("rate_limited"))),
            Kind::RateLimit => {
                self.taken[depth] += 1;
                self.run(depth + 1, now, budget)
            }
            // Calls come one after another: there is always a place, if every one was given back.
            Kind::Bulkhead => self.run(depth + 1, now, budget),
            Kind::Fallback => match self.run(depth + 1, now, budget) {
                (at, Some(Ended::Error(_) | Ended::Rejected(_))) => (at, Some(Ended::Value(FALLBACK))),
                ended => ended,
            },
        }
    }

    fn retry(&mut self, depth: usize, mut now: Millis, budget: Option<Millis>) -> End {
        let mut left = self.numbers[depth];
        loop {
            let (at, result) = self.run(depth + 1, now, budget);
            let wait = match result {
                Some(Ended::Error(Answer::Again(wait))) if wait <= LONGEST_RETRY_AFTER => wait,
                Some(Ended::Rejected("timeout")) => 0,
                _ => return (at, result),
            };
            if left == 0 || budget.is_some_and(|end| at + wait >= end) || self.retries[depth] == 0 {
                return (at, result);
            }
            left -= 1;
            self.retries[depth] -= 1;
            now = at + wait;
        }
    }

    fn attempt(&mut self, now: Millis, budget: Option<Millis>) -> End {
        let attempt = self.script[self.attempts % self.script.len()];
        self.attempts += 1;
        let at = now + attempt.latency;
        match budget {
            Some(end) if at > end => (end, None),
            _ => (at, Some(plain(attempt.answer))),
        }
    }
}

fn plain(answer: Answer) -> Ended {
    match answer {
        Answer::Value(value) => Ended::Value(value),
        error => Ended::Error(error),
    }
}

fn outcome(result: Ended, spent: bool) -> Outcome {
    match result {
        Ended::Value(_) => Outcome::Success,
        Ended::Error(Answer::Again(_)) => Outcome::Failure,
        Ended::Rejected("timeout") if !spent => Outcome::Failure,
        Ended::Error(_) | Ended::Rejected(_) => Outcome::Neutral,
    }
}

type Call = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A pipeline whose type is forgotten.
type Erased = Box<dyn Fn(Script) -> Call>;

/// The real attempts.
#[derive(Clone)]
struct Script {
    attempts: Arc<[Attempt]>,
    made: Arc<AtomicUsize>,
}

impl Script {
    async fn next(&self) -> Result<u32, Answer> {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        let attempt = self.attempts[nth % self.attempts.len()];
        if attempt.latency > 0 {
            sleep(Duration::from_millis(attempt.latency)).await;
        }
        match attempt.answer {
            Answer::Value(value) => Ok(value),
            error => Err(error),
        }
    }
}

fn erased<L>(pipeline: Pipeline<L>) -> Erased
where
    L: Layer<u32, Answer, Rejections> + 'static,
{
    Box::new(move |script| {
        let pipeline = pipeline.clone();
        Box::pin(async move {
            match pipeline.call(|| script.next()).await {
                Ok(value) => Ended::Value(value),
                Err(PipelineError::Inner(error)) => Ended::Error(error),
                Err(rejection) => Ended::Rejected(rejection.code().expect("a rejection has a code")),
            }
        })
    })
}

/// The layers by the names that the stacks below give them.
mod add {
    use super::*;

    pub(super) type Added<L, N> = Builder<Stack<L, N>, Scripted>;

    pub(super) fn deadline<L>(builder: Builder<L, Scripted>, number: u32) -> Added<L, crate::pipeline::Deadline> {
        builder.deadline(Duration::from_millis(number.into()))
    }

    pub(super) fn retry<L>(builder: Builder<L, Scripted>, number: u32) -> Added<L, crate::pipeline::Retries<Scripted>> {
        let retry = Retry::new(number)
            .with_base_delay(Duration::ZERO)
            .with_max_retry_after(Duration::from_millis(LONGEST_RETRY_AFTER))
            .with_budget(RetryBudget::new(0.0, 0).with_saved(SAVED_RETRIES));
        builder.retry(retry)
    }

    pub(super) fn breaker<L>(
        builder: Builder<L, Scripted>,
        number: u32,
    ) -> Added<L, crate::pipeline::Breaker<Scripted>> {
        let config = BreakerConfig::default()
            .with_failures_in_a_row(number)
            .with_open_for(Duration::from_millis(OPEN_FOR));
        builder.breaker(CircuitBreaker::new("order", config).expect("valid"))
    }

    pub(super) fn rate_limit<L>(builder: Builder<L, Scripted>, number: u32) -> Added<L, crate::pipeline::RateLimit> {
        // A window that no test sees the end of.
        let limit = Limit::new(number, Duration::from_secs(366 * 86_400)).with_algorithm(Algorithm::FixedWindow);
        builder.rate_limit(RateLimiter::local("order", limit).expect("valid"))
    }

    pub(super) fn bulkhead<L>(builder: Builder<L, Scripted>, _: u32) -> Added<L, crate::pipeline::Bulkhead<Scripted>> {
        builder.bulkhead(ConcurrencyLimit::new("order", ConcurrencyConfig::new(1)).expect("valid"))
    }

    pub(super) fn fallback<L>(builder: Builder<L, Scripted>, _: u32) -> Added<L, crate::pipeline::Fallback<Answers>> {
        builder.fallback(|_| std::future::ready(Ok(FALLBACK)))
    }

    type Answers = fn(PipelineError<Answer>) -> std::future::Ready<Result<u32, Answer>>;
}

macro_rules! kind {
    (deadline) => {
        Kind::Deadline
    };
    (retry) => {
        Kind::Retry
    };
    (breaker) => {
        Kind::Breaker
    };
    (bulkhead) => {
        Kind::Bulkhead
    };
    (rate_limit) => {
        Kind::RateLimit
    };
    (fallback) => {
        Kind::Fallback
    };
}

macro_rules! stacks {
    ($([$($layer:ident),*],)*) => {
        /// Each stack as a list for the model and as a type.
        fn stacks() -> Vec<(Vec<Kind>, fn(Numbers) -> Erased)> {
            vec![$((
                vec![$(kind!($layer)),*],
                |numbers| {
                    let mut numbers = numbers.into_iter();
                    let builder = Pipeline::builder().classify(Scripted);
                    $(let builder = add::$layer(builder, numbers.next().expect("a number for each layer"));)*
                    let _ = numbers;
                    erased(builder.build())
                },
            ),)*]
        }
    };
}

stacks![
    [deadline],
    [retry],
    [breaker],
    [rate_limit],
    [fallback],
    [bulkhead],
    [bulkhead, deadline],
    [deadline, bulkhead, retry],
    [retry, bulkhead, deadline],
    [deadline, retry, breaker, bulkhead, deadline],
    [fallback, deadline, retry, breaker, bulkhead, deadline],
    [deadline, retry],
    [retry, deadline],
    [retry, breaker],
    [breaker, retry],
    [breaker, deadline],
    [deadline, breaker],
    [rate_limit, retry],
    [retry, rate_limit],
    [retry, fallback],
    [fallback, retry],
    [breaker, fallback],
    [fallback, breaker],
    [retry, retry],
    [deadline, deadline],
    [breaker, breaker],
    [deadline, retry, deadline],
    [deadline, breaker, deadline],
    [breaker, retry, deadline],
    [retry, breaker, deadline],
    [deadline, fallback, deadline],
    [retry, deadline, breaker],
    [retry, deadline, retry],
    [deadline, retry, breaker, deadline],
    [deadline, breaker, retry, deadline],
    [fallback, deadline, retry, breaker],
    [retry, breaker, rate_limit, deadline],
    [deadline, retry, breaker, rate_limit, deadline],
    [fallback, deadline, retry, breaker, rate_limit, deadline],
    [breaker, deadline, retry, rate_limit, breaker, deadline],
    [deadline, rate_limit, retry, breaker, deadline, fallback],
];

fn any_attempt() -> impl Strategy<Value = Attempt> {
    let latency = prop_oneof![2 => Just(0), 3 => 1..30_u64, 1 => 30..120_u64];
    let answer = prop_oneof![
        2 => (0..9_u32).prop_map(Answer::Value),
        3 => prop_oneof![2 => Just(0), 2 => 1..20_u64, 1 => 50..70_u64].prop_map(Answer::Again),
        1 => Just(Answer::Final),
    ];
    (latency, answer).prop_map(|(latency, answer)| Attempt { latency, answer })
}

fn paused<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_stack_does_what_the_model_does(
        which in any::<prop::sample::Index>(),
        numbers in prop::array::uniform6(prop_oneof![3 => 1..6_u32, 2 => 6..80_u32]),
        script in vec(any_attempt(), 1..12),
        calls in vec((0..60_u64, prop::option::weighted(0.3, 1..90_u64)), 1..6),
    ) {
        let stacks = stacks();
        let (kinds, build) = which.get(&stacks);
        // Retries beyond the budget's add nothing, and a test should end.
        let mut model = Model {
            kinds: kinds.clone(),
            numbers,
            script: script.clone(),
            attempts: 0,
            circuits: [Circuit::default(); 6],
            taken: [0; 6],
            retries: [SAVED_RETRIES; 6],
        };
        let script = Script { attempts: script.into(), made: Arc::default() };
        paused(async {
            let started = Instant::now();
            let pipeline = build(numbers);
            let mut now = 0;
            for (pause, budget) in calls {
                sleep(Duration::from_millis(pause)).await;
                now += pause;
                // The budget of a request around the pipeline, on some calls.
                let call = pipeline(script.clone());
                let (result, outer) = match budget {
                    Some(budget) => (
                        deadline::scope(Duration::from_millis(budget), call).await.ok(),
                        Some(now + budget),
                    ),
                    None => (Some(call.await), None),
                };
                let (at, expected) = model.run(0, now, outer);
                prop_assert_eq!(result, expected, "{:?}", kinds);
                prop_assert_eq!(script.made.load(Ordering::Relaxed), model.attempts, "{:?}", kinds);
                prop_assert_eq!(started.elapsed().as_millis(), u128::from(at), "{:?}", kinds);
                now = at;
            }
            Ok(())
        })?;
    }
}

#[test]
fn the_stacks_differ() {
    let mut kinds: Vec<_> = stacks().into_iter().map(|(kinds, _)| format!("{kinds:?}")).collect();
    let all = kinds.len();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), all);
}
