//! Budgets: of the call, of an attempt, of the request around both.

use std::{future::pending, time::Duration};

use resilience::{breaker::State, deadline, outbound};
use tokio::time::{Instant, sleep};

use super::{Answer, Count, Failure, alone, rejected};

#[outbound(breaker = "payments", timeout = "500ms")]
async fn hangs() -> Answer {
    pending().await
}

#[outbound(breaker = "payments", timeout = "2s", attempt_timeout = "200ms", retry(2))]
async fn hangs_first(attempts: u32, asked: &Count) -> Answer {
    if asked.add() <= attempts {
        pending::<()>().await;
    }
    Ok(asked.get())
}

#[outbound(timeout = "500ms", retry(3, backoff = "1ms"))]
async fn fails_after(each: Duration, asked: &Count) -> Answer {
    asked.add();
    sleep(each).await;
    Err(Failure::Down)
}

#[outbound(breaker = "late", timeout = "1s", retry(1))]
async fn fails_late_then_hangs(asked: &Count) -> Answer {
    if asked.add() == 2 {
        pending::<()>().await;
    }
    sleep(Duration::from_millis(800)).await;
    Err(Failure::Down)
}

#[outbound(breaker = "queue", timeout = "1s", bulkhead(1, queue = 1, queue_timeout = "999ms"))]
async fn has_a_place() -> Answer {
    sleep(Duration::from_millis(990)).await;
    Ok(1)
}

#[outbound(timeout = "1s", fallback = late)]
async fn hangs_with_a_fallback() -> Answer {
    pending().await
}

async fn late(error: Failure) -> Answer {
    assert_eq!(error, rejected("timeout"));
    // Not bounded by the timeout, which is over.
    sleep(Duration::from_secs(3)).await;
    Ok(9)
}

#[outbound(timeout = "10s")]
async fn left() -> Answer<Duration> {
    Ok(deadline::remaining().expect("a budget"))
}

#[tokio::test(start_paused = true)]
async fn the_timeout_ends_the_call_and_the_dependency_has_failed() {
    alone(|dependencies| async move {
        for _ in 0..5 {
            assert_eq!(dependencies.breaker("payments").state(), State::Closed);
            let started = Instant::now();
            assert_eq!(hangs().await, Err(rejected("timeout")));
            assert!((500..=501).contains(&started.elapsed().as_millis()));
        }
        assert_eq!(dependencies.breaker("payments").state(), State::Open);
        assert_eq!(hangs().await, Err(rejected("circuit_open")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_spent_its_time_elsewhere_says_nothing_about_the_dependency() {
    alone(|dependencies| async move {
        for _ in 0..10 {
            // The first attempt fails late, and leaves the second less than half of the time.
            let asked = Count::default();
            assert_eq!(fails_late_then_hangs(&asked).await, Err(rejected("timeout")));
            assert_eq!(asked.get(), 2);
            dependencies.breaker("late").record_success();
            // Of the queue as well: whoever waits in it hears the same, and nobody has asked.
            let (holds, waits) = tokio::join!(has_a_place(), has_a_place());
            assert_eq!((holds, waits), (Ok(1), Err(rejected("timeout"))));
        }
        for breaker in dependencies.all() {
            assert_eq!(breaker.state(), State::Closed);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_out_of_time_is_made_again_and_counts_as_a_failure() {
    alone(|dependencies| async move {
        let asked = Count::default();
        let started = Instant::now();
        assert_eq!(hangs_first(2, &asked).await, Ok(3));
        assert!(started.elapsed() >= Duration::from_millis(400));
        assert!(started.elapsed() < Duration::from_millis(600));
        assert_eq!(dependencies.breaker("payments").state(), State::Closed);

        let asked = Count::default();
        assert_eq!(hangs_first(u32::MAX, &asked).await, Err(rejected("timeout")));
        assert_eq!(asked.get(), 3);
        assert_eq!(hangs_first(u32::MAX, &asked).await, Err(rejected("circuit_open")));
        // Five in a row, and the third attempt of the second call was refused.
        assert_eq!(dependencies.breaker("payments").state(), State::Open);
        assert_eq!(asked.get(), 5);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_timeout() {
    alone(|_| async {
        let asked = Count::default();
        let started = Instant::now();
        let answer = fails_after(Duration::from_millis(200), &asked).await;
        // The third attempt began in time, and was ended.
        assert_eq!(answer, Err(rejected("timeout")));
        assert_eq!(asked.get(), 3);
        assert!(started.elapsed() <= Duration::from_millis(501));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_fallback_hears_of_the_timeout_and_has_time_of_its_own() {
    alone(|_| async {
        let started = Instant::now();
        assert_eq!(hangs_with_a_fallback().await, Ok(9));
        assert_eq!(started.elapsed().as_secs(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_s_budget_shortens_the_call_s_and_never_the_other_way_round() {
    alone(|dependencies| async move {
        assert_eq!(left().await, Ok(Duration::from_secs(10)));
        let inside = deadline::scope(Duration::from_secs(1), left()).await;
        assert_eq!(inside, Ok(Ok(Duration::from_secs(1))));

        // It is the request that ends, and not the dependency that is slow.
        for _ in 0..20 {
            let started = Instant::now();
            let answer = deadline::scope(Duration::from_millis(100), hangs()).await;
            assert!(matches!(
                answer,
                Err(deadline::DeadlineExceeded) | Ok(Err(Failure::Rejected(_)))
            ));
            assert!(started.elapsed() <= Duration::from_millis(101));
        }
        assert_eq!(dependencies.breaker("payments").state(), State::Closed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_does_not_begin_the_call() {
    alone(|_| async {
        let asked = Count::default();
        let answer = deadline::scope(Duration::from_secs(1), async {
            // Blocks past the end of its budget, and goes on.
            tokio::time::advance(Duration::from_secs(2)).await;
            fails_after(Duration::ZERO, &asked).await
        });
        let answer = answer.await;
        assert!(matches!(answer, Err(_) | Ok(Err(Failure::Rejected(_)))), "{answer:?}");
        assert_eq!(asked.get(), 0);
    })
    .await;
}
