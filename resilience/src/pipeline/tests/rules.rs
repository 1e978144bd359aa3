//! One test for each rule that the docs state.

use std::{
    error::Error as StdError,
    future::{pending, ready},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use poem::{
    Endpoint, Request,
    http::{StatusCode, header},
};
use tokio::time::{Instant, sleep};

use crate::{
    Error, Limit,
    breaker::{BreakerConfig, CircuitBreaker, CircuitOpen, State},
    clock::Clock,
    concurrency::{ConcurrencyConfig, ConcurrencyLimit, Overloaded, Priority, Shed},
    deadline::{self, DeadlineExceeded},
    pipeline::{
        AnyRejection, Claim, Context, LimitError, PermitLimitExceeded, Pipeline, PipelineError, RateLimited,
        RateLimiter, Retry, RetryBudget, Verdict,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// The call's own error: which attempt it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("attempt {0} failed")]
struct Failed(u32);

/// A dependency that is down, and how often it was asked.
#[derive(Default)]
struct Down(AtomicU32);

impl Down {
    async fn ask(&self) -> Result<u32, Failed> {
        Err(Failed(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn asked(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A breaker that is open for five seconds.
fn open_breaker() -> CircuitBreaker {
    let breaker = CircuitBreaker::new("test", BreakerConfig::default()).unwrap();
    while !breaker.record_failure() {}
    breaker
}

fn limiter(requests: u32) -> RateLimiter {
    let clock = Clock::manual();
    RateLimiter::local("test", Limit::new(requests, SECOND))
        .unwrap()
        .with_clock(clock)
}

fn inner<E, K: crate::pipeline::Kinds>(error: PipelineError<E, K>) -> E {
    error.into_inner().expect("the call's own error")
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_amplified_by_no_more_than_the_ratio() {
    const CALLS: u32 = 1_000;
    let retry = Retry::new(5).with_base_delay(millis(1));
    let pipeline = Pipeline::builder().retry(retry).build();
    let (down, started) = (Down::default(), Instant::now());
    for _ in 0..CALLS {
        assert!(pipeline.call(|| down.ask()).await.is_err());
    }
    let time = started.elapsed().as_secs_f64();
    let most = f64::from(CALLS) * 1.1 + 10.0 + time.ceil();
    assert!(f64::from(down.asked()) <= most, "{} of {most}", down.asked());
    // And what there is, is used.
    assert!(down.asked() > CALLS + CALLS / 11);

    // What it is without one.
    let pipeline = Pipeline::builder().retry(Retry::new(5).without_budget()).build();
    let down = Down::default();
    for _ in 0..100 {
        assert!(pipeline.call(|| down.ask()).await.is_err());
    }
    assert_eq!(down.asked(), 600);
}

#[tokio::test(start_paused = true)]
async fn many_callers_at_once_share_the_budget() {
    let budget = RetryBudget::new(0.0, 0).with_saved(7);
    let pipeline = Pipeline::builder()
        .retry(Retry::new(3).with_budget(budget.clone()))
        .build();
    let down = Down::default();
    let calls = (0..50).map(|_| pipeline.call(|| down.ask()));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(down.asked(), 57);
    assert_eq!(budget.available(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_error_comes_out_and_a_success_is_final() {
    let pipeline = Pipeline::builder().retry(3).build();
    let down = Down::default();
    let error = pipeline.call(|| down.ask()).await.unwrap_err();
    assert_eq!(inner(error), Failed(4));

    let mut attempts = 0;
    let answer = pipeline.call(|| {
        attempts += 1;
        ready(if attempts == 3 {
            Ok(attempts)
        } else {
            Err(Failed(attempts))
        })
    });
    assert_eq!(answer.await.unwrap(), 3);
    assert_eq!(attempts, 3);

    // Not even a classifier can have a success made again.
    let pipeline = Pipeline::builder()
        .classify_by(|_: Result<&u32, &Failed>| Verdict::success().retryable())
        .retry(3)
        .build();
    let mut attempts = 0;
    let answer = pipeline.call(|| {
        attempts += 1;
        ready(Ok(attempts))
    });
    assert_eq!(answer.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn waits_are_drawn_from_zero_to_the_exponential_one() {
    let retry = Retry::new(4)
        .with_base_delay(millis(100))
        .with_max_delay(millis(300))
        .without_budget();
    let pipeline = Pipeline::builder().retry(retry).build();
    let (mut shortest, mut longest) = ([Duration::MAX; 4], [Duration::ZERO; 4]);
    for _ in 0..300 {
        let mut made = Vec::new();
        let answer = pipeline.call(|| {
            made.push(Instant::now());
            ready(Err::<(), _>(Failed(0)))
        });
        assert!(answer.await.is_err());
        for (nth, pair) in made.windows(2).enumerate() {
            let wait = pair[1] - pair[0];
            shortest[nth] = shortest[nth].min(wait);
            longest[nth] = longest[nth].max(wait);
        }
    }
    for (nth, full) in [100, 200, 300, 300].into_iter().enumerate() {
        // Timers round up to the millisecond. A draw outside of the middle 80 % is missed 300 times in 1e29 runs.
        assert!(longest[nth] <= millis(full + 1), "{longest:?}");
        assert!(longest[nth] > millis(full * 9 / 10), "{longest:?}");
        assert!(shortest[nth] < millis(full / 10 + 1), "{shortest:?}");
    }
}

/// A pipeline whose errors ask for this wait.
fn asks_for(wait: Duration) -> impl AsyncFn(&Down) -> u32 {
    let pipeline = Pipeline::builder()
        .classify_by(move |answer: Result<&u32, &Failed>| match answer {
            Ok(_) => Verdict::success(),
            Err(_) => Verdict::neutral().retryable().with_retry_after(wait),
        })
        .retry(2)
        .build();
    async move |down| inner(pipeline.call(|| down.ask()).await.unwrap_err()).0
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_out() {
    let started = Instant::now();
    assert_eq!(asks_for(SECOND * 3)(&Down::default()).await, 3);
    assert_eq!(started.elapsed().as_secs(), 6);
    // One that is shorter than the wait adds nothing to it.
    let started = Instant::now();
    assert_eq!(asks_for(Duration::ZERO)(&Down::default()).await, 3);
    assert!(started.elapsed() <= millis(150 + 2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_does_not_fit_is_not_begun() {
    let started = Instant::now();
    assert_eq!(asks_for(SECOND * 11)(&Down::default()).await, 1, "more than 10 s");
    let within = |budget, wait| deadline::scope(budget, async move { asks_for(wait)(&Down::default()).await });
    assert_eq!(
        within(SECOND, SECOND).await,
        Ok(1),
        "nothing would be left for the attempt"
    );
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(within(SECOND * 5, SECOND * 2).await, Ok(3), "both fit");
    assert_eq!(within(SECOND * 4, SECOND * 2).await, Ok(2), "the second does not");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_made_when_the_time_is_up() {
    let pipeline = Pipeline::builder()
        .deadline(millis(100))
        .retry(Retry::new(1_000).with_base_delay(millis(7)).without_budget())
        .build();
    for _ in 0..50 {
        let started = Instant::now();
        let mut last = Duration::ZERO;
        let error = pipeline.call(|| {
            last = started.elapsed();
            ready(Err::<(), _>(Failed(0)))
        });
        assert_eq!(
            inner(error.await.unwrap_err()),
            Failed(0),
            "the error, and not a timeout"
        );
        assert!(last < millis(100) && started.elapsed() <= millis(100));
    }
    // And none at all, where the request's own budget is spent before.
    let down = Down::default();
    let late = deadline::scope(millis(5), async {
        sleep(millis(5)).await;
        pipeline.call(|| down.ask()).await
    });
    assert!(matches!(late.await, Ok(Err(PipelineError::Timeout(DeadlineExceeded)))));
    assert_eq!(down.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_out_of_time_is_made_again_and_a_request_out_of_time_is_not() {
    let breaker = CircuitBreaker::new("test", BreakerConfig::default().with_failures_in_a_row(2)).unwrap();
    let pipeline = Pipeline::builder()
        .retry(Retry::new(1).with_base_delay(Duration::ZERO))
        .breaker(breaker.clone())
        .deadline(millis(50))
        .build();
    // The request's budget ends in the midst of the attempt's, or with it.
    for budget in [20, 50] {
        let ended = deadline::scope(millis(budget), async {
            let mut made = 0;
            let answer = pipeline.call(|| {
                made += 1;
                pending::<Result<(), Failed>>()
            });
            let answer = answer.await;
            (answer, made)
        });
        let (answer, made) = ended.await.expect("the pipeline answers first");
        assert!(matches!(answer, Err(PipelineError::Timeout(_))));
        assert_eq!(made, 1);
        assert_eq!(breaker.state(), State::Closed);
    }
    let mut made = 0;
    let answer = pipeline.call(|| {
        made += 1;
        pending::<Result<(), Failed>>()
    });
    assert!(matches!(answer.await, Err(PipelineError::Timeout(_))));
    assert_eq!(made, 2);
    assert_eq!(
        breaker.state(),
        State::Open,
        "two attempts out of time, and nothing before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_from_inside_is_final_unless_asked_otherwise() {
    let started = Instant::now();
    let down = Down::default();
    let pipeline = Pipeline::builder().retry(3).breaker(open_breaker()).build();
    let refused = pipeline.call(|| down.ask()).await;
    assert!(matches!(refused, Err(PipelineError::Open(_))));
    let pipeline = Pipeline::builder().retry(3).rate_limit(limiter(1)).build();
    assert!(pipeline.call(|| ready(Ok::<_, Failed>(1))).await.is_ok());
    let refused = pipeline.call(|| ready(Ok::<_, Failed>(2))).await;
    assert!(matches!(refused, Err(PipelineError::RateLimited(_))));
    assert_eq!((started.elapsed(), down.asked()), (Duration::ZERO, 0));

    let pipeline = Pipeline::builder()
        .retry(Retry::new(3).with_rejections())
        .breaker(open_breaker())
        .build();
    assert_eq!(pipeline.call(|| ready(Ok::<_, Failed>(3))).await.unwrap(), 3);
    assert_eq!(started.elapsed().as_secs(), 5, "after the open time");
}

fn limit_of_one(queue: u32) -> ConcurrencyLimit {
    let config = ConcurrencyConfig::new(1)
        .with_queue(queue)
        .with_queue_timeout(millis(100));
    ConcurrencyLimit::new("test", config).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_full_bulkhead_refuses_and_a_spent_budget_is_no_overload() {
    let limit = limit_of_one(4);
    let _holder = limit.try_acquire(Priority::Default).unwrap();
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let call = || pipeline.call(|| ready(Ok::<_, Failed>(())));
    let Err(PipelineError::Overloaded(full)) = call().await else {
        panic!("no place in 100 ms");
    };
    assert_eq!(full.reason(), Shed::QueueTimeout);
    for budget in [20, 99] {
        let ended = deadline::scope(millis(budget), call()).await;
        assert!(matches!(
            ended,
            Ok(Err(PipelineError::Timeout(_))) | Err(DeadlineExceeded)
        ));
    }
    let full = Pipeline::builder().retry(3).bulkhead(limit_of_one(0)).build();
    let inside = full.call(|| async {
        let refused = full.call(|| ready(Ok::<(), Failed>(()))).await;
        assert!(matches!(&refused, Err(PipelineError::Overloaded(full)) if full.reason() == Shed::QueueFull));
        Ok::<_, Failed>(())
    });
    assert!(inside.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_bulkhead_learns_from_what_runs_out_of_time_and_not_from_errors() {
    let limit = || ConcurrencyLimit::new("test", ConcurrencyConfig::new(64).with_adaptive(Default::default())).unwrap();
    let (failing, hanging) = (limit(), limit());
    let started = failing.limit();
    let pipeline = |limit: &ConcurrencyLimit| {
        let builder = Pipeline::builder().bulkhead(limit.clone());
        builder.deadline(millis(50)).build()
    };
    let (fails, hangs) = (pipeline(&failing), pipeline(&hanging));
    for _ in 0..50 {
        let calls = (0..4).map(|_| async {
            assert!(fails.call(|| ready(Err::<(), _>(Failed(1)))).await.is_err());
            assert!(hangs.call(pending::<Result<(), Failed>>).await.is_err());
        });
        futures_util::future::join_all(calls).await;
    }
    assert_eq!(failing.limit(), started, "a fast error says nothing of time");
    assert!(hanging.limit() < started, "{} of {started}", hanging.limit());
}

#[tokio::test(start_paused = true)]
async fn the_priority_of_the_context_decides_who_is_next() {
    let limit = limit_of_one(8);
    let holder = limit.try_acquire(Priority::Default).unwrap();
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let served = std::sync::Mutex::new(Vec::new());
    let call = |priority: Option<Priority>| {
        let context = priority.map_or_else(Context::new, |priority| Context::new().with(priority));
        let (pipeline, served) = (&pipeline, &served);
        async move {
            let answer = pipeline.call_with(&context, || {
                served.lock().unwrap().push(priority);
                ready(Ok::<_, Failed>(()))
            });
            answer.await.unwrap();
        }
    };
    let (background, critical) = (Some(Priority::Background), Some(Priority::Critical));
    tokio::join!(call(background), call(None), call(critical), async {
        tokio::task::yield_now().await;
        drop(holder);
    });
    assert_eq!(*served.lock().unwrap(), [critical, None, background]);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_answers_for_what_is_inside_it_alone() {
    let down = Down::default();
    let inside = Pipeline::builder()
        .fallback(|error: PipelineError<Failed>| async move { Ok(error.into_inner().map_or(0, |failed| failed.0)) })
        .retry(2)
        .build();
    assert_eq!(inside.call(|| down.ask()).await.unwrap(), 3);
    let outside = Pipeline::builder()
        .breaker(open_breaker())
        .fallback(|_| ready(Ok(7)))
        .build();
    assert!(matches!(outside.call(|| down.ask()).await, Err(PipelineError::Open(_))));
    // One that fails too: its error is the call's own.
    let failing = Pipeline::builder()
        .fallback(|_| ready(Err(Failed(99))))
        .breaker(open_breaker())
        .build();
    let Err(PipelineError::Inner(Failed(99))) = failing.call(|| down.ask()).await else {
        panic!("the fallback's own error");
    };
}

#[tokio::test(start_paused = true)]
async fn recovering_may_pass_an_error_on() {
    let recover = |error: PipelineError<Failed>| {
        ready(match error {
            PipelineError::Open(_) => Ok(1),
            other => Err(other),
        })
    };
    let down = Down::default();
    let pipeline = Pipeline::builder().recover(recover).breaker(open_breaker()).build();
    assert_eq!(pipeline.call(|| down.ask()).await.unwrap(), 1);
    let pipeline = Pipeline::builder().recover(recover).build();
    assert_eq!(inner(pipeline.call(|| down.ask()).await.unwrap_err()), Failed(1));
}

#[tokio::test]
async fn keys_and_costs_come_from_the_context() {
    #[derive(Clone)]
    struct Tenant(&'static str, u32);

    let pipeline = Pipeline::builder()
        .rate_limit_by(limiter(3), |context| match context.get::<Tenant>() {
            Some(Tenant(name, cost)) => Claim::new(*name).with_cost(*cost),
            None => Claim::shared(),
        })
        .build();
    let call = async |context: Context| pipeline.call_with(&context, || ready(Ok::<_, Failed>(()))).await;
    let tenant = |name, cost| Context::new().with(Tenant(name, cost));
    assert!(call(tenant("a", 2)).await.is_ok());
    let Err(PipelineError::RateLimited(limited)) = call(tenant("a", 2)).await else {
        panic!("two and two are more than three");
    };
    assert!(limited.retry_after() > Duration::ZERO);
    assert!(call(tenant("a", 1)).await.is_ok(), "what was refused took nothing");
    assert!(call(tenant("b", 3)).await.is_ok());
    assert!(call(tenant("b", 0)).await.is_ok(), "a call of no cost");
    for _ in 0..3 {
        assert!(call(Context::new()).await.is_ok());
    }
    assert!(call(Context::new()).await.is_err());
    let Err(PipelineError::PermitLimitExceeded(over)) = call(tenant("c", 4)).await else {
        panic!("four are more than three");
    };
    assert_eq!(over.limiter(), "test");
}

#[test]
fn a_limiter_of_no_sense_is_refused() {
    assert!(RateLimiter::local("test", Limit::new(0, SECOND)).is_err());
    assert!(RateLimiter::local("test", Limit::new(1, Duration::ZERO)).is_err());
}

#[test]
fn a_limiter_waits_for_its_window() {
    let clock = Clock::manual();
    let limiter = RateLimiter::local("test", Limit::new(1, SECOND))
        .unwrap()
        .with_clock(clock.clone());
    assert!(limiter.try_acquire("a").is_ok());
    let Err(LimitError::RateLimited(limited)) = limiter.clone().try_acquire("a") else {
        panic!("one in a second");
    };
    clock.advance(limited.retry_after());
    assert!(limiter.try_acquire("a").is_ok());
}

/// One of each rejection, as any pipeline can give it.
fn rejections() -> Vec<(PipelineError<Failed>, &'static str, StatusCode)> {
    let open = open_breaker().try_acquire().unwrap_err();
    let bulkhead = limit_of_one(0);
    let _holder = bulkhead.try_acquire(Priority::Default).unwrap();
    let full = bulkhead.try_acquire(Priority::Default).unwrap_err();
    let limits = limiter(1);
    limits.try_acquire("a").unwrap();
    let limited = match limits.try_acquire("a").unwrap_err() {
        LimitError::RateLimited(limited) => limited,
        LimitError::PermitLimitExceeded(_) => unreachable!("it costs 1"),
    };
    let over = match limits.try_acquire(Claim::shared().with_cost(2)).unwrap_err() {
        LimitError::PermitLimitExceeded(over) => over,
        LimitError::RateLimited(_) => unreachable!("2 is above the limit"),
    };
    vec![
        (
            PipelineError::Timeout(DeadlineExceeded),
            "timeout",
            StatusCode::GATEWAY_TIMEOUT,
        ),
        (
            PipelineError::Open(open),
            "circuit_open",
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (
            PipelineError::Overloaded(full),
            "overloaded",
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (
            PipelineError::RateLimited(limited),
            "rate_limited",
            StatusCode::TOO_MANY_REQUESTS,
        ),
        (
            PipelineError::PermitLimitExceeded(over),
            "permit_limit_exceeded",
            StatusCode::TOO_MANY_REQUESTS,
        ),
    ]
}

fn is_rejection(error: &(dyn StdError + 'static)) -> bool {
    error.is::<DeadlineExceeded>()
        || error.is::<CircuitOpen>()
        || error.is::<Overloaded>()
        || error.is::<RateLimited>()
        || error.is::<PermitLimitExceeded>()
}

#[tokio::test]
async fn each_rejection_says_what_it_is_everywhere() {
    for (rejection, code, status) in rejections() {
        assert_eq!(rejection.code(), Some(code));
        assert_eq!(rejection.http_status(), Some(status));
        assert!(is_rejection(rejection.source().expect("the rejection")), "{rejection}");

        let error = Error::from(with_own(rejection.clone()));
        assert_eq!((error.code(), error.http_status()), (code, status));
        assert!(is_rejection(error.source().expect("what it was made of")));
        assert_eq!(error.retry_after().is_some(), rejection.retry_after().is_some());

        let retry_after = rejection.retry_after();
        let answer = poem::Error::from(with_poem(rejection)).into_response();
        assert_eq!(answer.status(), status);
        assert_eq!(
            answer.headers().contains_key(header::RETRY_AFTER),
            retry_after.is_some()
        );
        let body = answer.into_body().into_string().await.unwrap();
        assert!(body.contains(&format!("\"error\":\"{code}\"")), "{body}");
    }
}

fn with_own(error: PipelineError<Failed>) -> PipelineError<Error> {
    error.map(|failed| Error::new(StatusCode::BAD_GATEWAY, "failed", failed.to_string()))
}

fn with_poem(error: PipelineError<Failed>) -> PipelineError<poem::Error> {
    error.map(poem::error::InternalServerError)
}

#[test]
fn the_call_s_own_error_passes_through_untouched() {
    let error = PipelineError::<_, AnyRejection>::Inner(Failed(3));
    assert_eq!(
        (error.code(), error.http_status(), error.retry_after()),
        (None, None, None)
    );
    assert!(error.source().expect("its own").is::<Failed>());
    assert_eq!(
        poem::Error::from(with_poem(error.clone())).status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(Error::from(with_own(error.clone())).code(), "failed");
    assert_eq!(with_own(error).flatten().code(), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_question_mark_in_a_handler_does_what_it_should() {
    #[poem::handler]
    async fn quote(pipeline: poem::web::Data<&CircuitBreaker>) -> poem::Result<String> {
        let pipeline = Pipeline::builder()
            .deadline(millis(100))
            .breaker(pipeline.clone())
            .build();
        let name = String::from("quote");
        Ok(pipeline
            .call(|| async {
                sleep(millis(200)).await;
                Ok::<_, std::io::Error>(name.clone())
            })
            .await
            .map_err(|error| error.map(poem::error::BadGateway))?)
    }

    let ask = async |breaker: CircuitBreaker| {
        let app = poem::EndpointExt::data(quote, breaker);
        app.get_response(Request::default()).await.status()
    };
    let well = CircuitBreaker::new("test", BreakerConfig::default()).unwrap();
    assert_eq!(ask(well).await, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(ask(open_breaker()).await, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_opens_the_breaker() {
    let window = crate::breaker::RateWindow::Calls(2);
    let config = BreakerConfig::default().with_slow_calls(millis(80), 1.0, 2, window);
    let breaker = CircuitBreaker::new("test", config).unwrap();
    let pipeline = Pipeline::builder().breaker(breaker.clone()).build();
    for _ in 0..2 {
        let slow = pipeline.call(|| async {
            sleep(millis(100)).await;
            Ok::<_, Failed>(())
        });
        assert!(slow.await.is_ok());
    }
    assert_eq!(breaker.state(), State::Open);
}
