//! A call that is dropped or panics, at any point: nothing stays taken, and nobody is blamed.

use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    breaker::{BreakerConfig, CircuitBreaker, Outcome, State},
    concurrency::{ConcurrencyConfig, ConcurrencyLimit},
    deadline,
    pipeline::{Pipeline, PipelineError, Retry, Verdict},
};

const OPEN_FOR: Duration = Duration::from_millis(40);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A breaker that opens at the first failure, half-open: the next call is the probe.
async fn due() -> CircuitBreaker {
    let config = BreakerConfig::default()
        .with_failures_in_a_row(1)
        .with_open_for(OPEN_FOR);
    let breaker = CircuitBreaker::new("test", config).unwrap();
    assert!(breaker.record_failure());
    sleep(OPEN_FOR).await;
    breaker
}

/// A limit with one place.
fn one_place() -> ConcurrencyLimit {
    ConcurrencyLimit::new("test", ConcurrencyConfig::new(1).with_queue(1)).unwrap()
}

/// Everything around a call that sleeps, fails once and then answers.
async fn everything(breaker: CircuitBreaker, limit: ConcurrencyLimit) -> Result<u32, PipelineError<u32>> {
    let pipeline = Pipeline::builder()
        .classify_by(|answer: Result<&u32, &u32>| match answer {
            Ok(_) => Verdict::success(),
            Err(_) => Verdict::neutral().retryable().with_retry_after(millis(10)),
        })
        .deadline(millis(100))
        .breaker(breaker)
        .retry(Retry::new(2).with_base_delay(Duration::ZERO))
        .bulkhead(limit)
        .deadline(millis(20))
        .build();
    let mut attempts = 0;
    let answer = pipeline.call(|| {
        attempts += 1;
        let failing = attempts == 1;
        async move {
            sleep(millis(5)).await;
            tokio::task::yield_now().await;
            sleep(millis(5)).await;
            if failing { Err(0) } else { Ok(7) }
        }
    });
    answer.await.map_err(PipelineError::widen)
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_time_leaves_the_probe_s_slot() {
    let limit = one_place();
    let mut dropped = 0;
    for after in 0..40 {
        let breaker = due().await;
        let ended = timeout(millis(after), everything(breaker.clone(), limit.clone())).await;
        assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
        match ended {
            Ok(answer) => {
                assert_eq!(answer.unwrap(), 7);
                assert_eq!(breaker.state(), State::Closed);
            }
            Err(_) => {
                dropped += 1;
                assert_eq!(breaker.state(), State::HalfOpen);
                breaker.try_acquire().expect("the slot is free").success();
            }
        }
    }
    assert!(dropped >= 29, "{dropped}");
}

/// Polls a future so many times and drops it.
async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // With no poll left nobody would wake this task for the drop.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_leaves_the_probe_s_slot() {
    let limit = one_place();
    let mut polls = 0;
    loop {
        let breaker = due().await;
        if let Some(answer) = polled(everything(breaker.clone(), limit.clone()), polls).await {
            assert_eq!(answer.unwrap(), 7);
            break;
        }
        assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
        // A call that was never polled has not asked yet.
        assert_ne!(breaker.state(), State::Closed);
        breaker.try_acquire().expect("the slot is free").success();
        polls += 1;
    }
    // Two sleeps and a yield in each of two attempts, and the wait between them.
    assert!(polls >= 7, "{polls}");
}

#[tokio::test(start_paused = true)]
async fn a_request_out_of_time_blames_nobody() {
    let limit = one_place();
    for budget in 1..29 {
        let breaker = due().await;
        let ended = deadline::scope(millis(budget), everything(breaker.clone(), limit.clone())).await;
        assert_eq!(limit.in_flight(), 0);
        assert!(!matches!(ended, Ok(Ok(_))));
        assert_ne!(breaker.state(), State::Open, "at {budget}");
        breaker.try_acquire().expect("the slot is free").success();
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_call_or_in_the_classifier_leaves_the_probe_s_slot() {
    let (breaker, limit) = (due().await, one_place());
    let pipeline = Pipeline::builder()
        .retry(2)
        .breaker(breaker.clone())
        .bulkhead(limit.clone())
        .deadline(OPEN_FOR)
        .build();
    let answer = pipeline.call(|| async {
        sleep(millis(1)).await;
        if true {
            panic!("the call");
        }
        Ok::<_, u32>(())
    });
    assert!(AssertUnwindSafe(answer).catch_unwind().await.is_err());
    assert_eq!((breaker.state(), limit.in_flight()), (State::HalfOpen, 0));

    let classifier = |_: Result<&(), &u32>| -> Verdict { panic!("the classifier") };
    let pipeline = Pipeline::builder()
        .classify_by(classifier)
        .breaker(breaker.clone())
        .build();
    let answer = pipeline.call(|| async { Ok::<_, u32>(()) });
    assert!(AssertUnwindSafe(answer).catch_unwind().await.is_err());
    assert_eq!(breaker.state(), State::HalfOpen);
    assert!(
        !breaker
            .try_acquire()
            .expect("the slot is free")
            .record(Outcome::Success)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_the_queue_of_a_bulkhead_leaves_its_place() {
    let limit = one_place();
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let quick = || pipeline.call(|| async { Ok::<_, u32>(7) });
    let holder = limit.try_acquire(Default::default()).unwrap();
    for _ in 0..3 {
        assert!(polled(quick(), 1).await.is_none());
        assert_eq!(limit.queued(), 0);
    }
    let (waited, ()) = tokio::join!(quick(), async { drop(holder) });
    assert_eq!(waited.unwrap(), 7);
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_move_between_threads_and_are_dropped_there() {
    let config = BreakerConfig::default().with_failures_in_a_row(1_000);
    let breaker = CircuitBreaker::new("test", config).unwrap();
    let pipeline = Pipeline::builder()
        .deadline(Duration::from_secs(60))
        .retry(Retry::new(3).with_base_delay(Duration::ZERO))
        .breaker(breaker.clone());
    let limit = ConcurrencyLimit::new("test", ConcurrencyConfig::new(3).with_queue(500)).unwrap();
    let pipeline = pipeline.bulkhead(limit.clone()).build();
    let started = Instant::now();
    let tasks: Vec<_> = (0..200_u64)
        .map(|nth| {
            let pipeline = pipeline.clone();
            tokio::spawn(async move {
                let mut attempts = 0;
                let call = pipeline.call(|| {
                    attempts += 1;
                    let fails = attempts < 3;
                    async move {
                        tokio::task::yield_now().await;
                        if fails { Err(nth) } else { Ok(nth) }
                    }
                });
                polled(call, (nth % 7) as usize).await
            })
        })
        .collect();
    for (nth, task) in tasks.into_iter().enumerate() {
        match task.await.expect("no panic") {
            Some(Ok(value)) => assert_eq!(value, nth as u64),
            // Dropped, or without a token for a retry.
            Some(Err(PipelineError::Inner(value))) => assert_eq!(value, nth as u64),
            Some(Err(PipelineError::Overloaded(_))) => {}
            Some(Err(other)) => panic!("{other:?}"),
            None => {}
        }
    }
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
    assert!(started.elapsed() < Duration::from_secs(60));
}
