//! What is made again, when, and how often over all calls.

use std::{
    future::{pending, ready},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Down, Failed, SECOND, inner, limiter, millis, open_breaker};
use crate::{
    breaker::{BreakerConfig, CircuitBreaker, State},
    deadline::{self, DeadlineExceeded},
    pipeline::{Pipeline, PipelineError, Retry, RetryBudget, Verdict},
};

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
