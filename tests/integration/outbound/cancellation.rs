//! Callers that go away, and callbacks that panic: nothing stays behind.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use resilience::{Dependencies, breaker::State, outbound, pipeline::Verdict};
use tokio::task::yield_now;

use super::{Answer, Count, Failure, alone, rejected};

/// Has an await at each of its attempts' beginnings and ends.
#[outbound(
    breaker = "payments",
    timeout = "10s",
    attempt_timeout = "1s",
    retry(2, backoff = "1ms"),
    bulkhead(1),
    fallback = give_up,
    classify = never_the_dependency
)]
async fn slow(held: Count, alive: &Count) -> Answer {
    let _alive = Alive::new(alive);
    yield_now().await;
    held.add();
    yield_now().await;
    Err(Failure::Down)
}

async fn give_up(error: Failure) -> Answer {
    yield_now().await;
    Err(error)
}

fn never_the_dependency(_: Result<&u32, &Failure>) -> Verdict {
    Verdict::neutral().retryable()
}

/// How many of them there are.
struct Alive<'a>(&'a Count);

impl<'a> Alive<'a> {
    fn new(count: &'a Count) -> Self {
        count.add();
        Self(count)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[outbound(breaker = "panics", bulkhead(1), classify = panicking_judge)]
async fn panics(answer: u32) -> Answer {
    assert_ne!(answer, 0, "the body panics");
    Ok(answer)
}

fn panicking_judge(answer: Result<&u32, &Failure>) -> Verdict {
    assert_ne!(answer, Ok(&1), "the classifier panics");
    Verdict::success()
}

#[outbound(breaker = "half_open", timeout = "1s")]
async fn probe(hang: bool) -> Answer {
    if hang {
        std::future::pending::<()>().await;
    }
    Ok(1)
}

fn assert_idle(dependencies: &Dependencies) {
    for bulkhead in dependencies.bulkheads() {
        assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (0, 0));
    }
    for breaker in dependencies.all() {
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_may_be_dropped_at_any_await() {
    alone(|dependencies| async move {
        let mut polls = 0;
        loop {
            let (held, alive) = (Count::default(), Count::default());
            let mut left = polls;
            let ended = {
                let mut call = pin!(slow(held.clone(), &alive));
                poll_fn(|cx| match call.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        left -= 1;
                        Poll::Pending
                    }
                })
                .await
            };
            assert_eq!(alive.get(), 0, "after {polls} polls");
            // Clones of the arguments went with it.
            assert_eq!(std::sync::Arc::strong_count(&held.0), 1);
            assert_idle(&dependencies);
            if let Some(answer) = ended {
                assert_eq!(answer, Err(Failure::Down));
                break;
            }
            polls += 1;
            // So that every run has its retries.
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert!(polls > 6, "{polls}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_gives_its_slot_back() {
    alone(|dependencies| async move {
        let breaker = dependencies.breaker("half_open");
        for _ in 0..5 {
            breaker.record_failure();
        }
        assert_eq!(probe(false).await, Err(rejected("circuit_open")));
        tokio::time::advance(Duration::from_secs(5)).await;
        {
            let mut call = pin!(probe(true));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(probe(false).await, Err(rejected("circuit_open")));
        }
        assert_eq!(probe(false).await, Ok(1));
        assert_eq!(breaker.state(), State::Closed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_holds_nothing_and_poisons_nothing() {
    alone(|dependencies| async move {
        for answer in [0, 1] {
            let mut call = pin!(panics(answer));
            let poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
            assert_idle(&dependencies);
        }
        assert_eq!(panics(2).await, Ok(2));
        assert_idle(&dependencies);
    })
    .await;
}
