//! Retries, fallbacks and what counts as a failure.

use resilience::{breaker::State, outbound, pipeline::Verdict};

use super::{Answer, Count, Failure, alone, rejected};

/// Fails this often, then answers with the number of the attempt.
#[outbound(breaker = "payments", retry(3))]
async fn fails_first(failures: u32, asked: &Count) -> Answer {
    let attempt = asked.add();
    if attempt <= failures {
        return Err(Failure::Down);
    }
    Ok(attempt)
}

#[outbound(retry(3), breaker = "payments", classify = judge)]
async fn judged(answer: Answer, asked: &Count) -> Answer {
    asked.add();
    answer
}

fn judge(answer: Result<&u32, &Failure>) -> Verdict {
    match answer {
        Ok(0) => Verdict::failure().retryable(),
        Ok(_) => Verdict::success(),
        Err(Failure::Declined) => Verdict::neutral(),
        Err(_) => Verdict::failure().retryable(),
    }
}

#[outbound(breaker = "payments", fallback = cached)]
async fn with_fallback(answer: Answer) -> Answer {
    let answer = answer?;
    Ok(answer)
}

async fn cached(error: Failure) -> Answer {
    match error {
        Failure::Declined => Err(error),
        Failure::Down => Ok(1),
        Failure::Rejected(_) => Ok(2),
    }
}

/// Ends by `?`, by `return` and by its tail.
#[outbound(breaker = "parser")]
async fn parsed(text: &str) -> Answer {
    let number: u32 = text.parse()?;
    if number == 0 {
        return Err(Failure::Down);
    }
    Ok(number)
}

#[derive(Clone)]
struct Order {
    id: u32,
    copies: Count,
}

#[outbound(retry(2))]
async fn takes(mut order: Order, asked: &Count) -> Answer {
    order.id += 1;
    if asked.add() < 3 {
        return Err(Failure::Down);
    }
    order.copies.add();
    Ok(order.id)
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_made_again_and_a_good_one_is_not() {
    alone(|_| async {
        for (failures, answer, attempts) in [(0, Ok(1), 1), (1, Ok(2), 2), (3, Ok(4), 4)] {
            let asked = Count::default();
            assert_eq!(fails_first(failures, &asked).await, answer);
            assert_eq!(asked.get(), attempts);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_last_error_comes_out_when_the_retries_are_used_up() {
    alone(|_| async {
        let asked = Count::default();
        assert_eq!(fails_first(u32::MAX, &asked).await, Err(Failure::Down));
        assert_eq!(asked.get(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn retries_of_all_calls_stay_within_one_budget() {
    alone(|dependencies| async move {
        let asked = Count::default();
        let budget = dependencies.retry_budget("payments");
        let saved = budget.available();
        let calls = 100;
        for _ in 0..calls {
            // A closed circuit for each, so that only the budget bounds the retries.
            let _ = judged(Err(Failure::Down), &asked).await;
            dependencies.breaker("payments").record_success();
        }
        // What was saved, a tenth of the calls, and one a second for the few seconds of waits.
        assert!(asked.get() <= calls + saved + calls / 10 + 10, "{}", asked.get());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_classifier_says_what_is_tried_again_and_what_the_breaker_counts() {
    alone(|dependencies| async move {
        let asked = Count::default();
        for _ in 0..20 {
            assert_eq!(judged(Err(Failure::Declined), &asked).await, Err(Failure::Declined));
        }
        assert_eq!(asked.get(), 20);
        assert_eq!(dependencies.breaker("payments").state(), State::Closed);

        let asked = Count::default();
        assert_eq!(judged(Ok(0), &asked).await, Ok(0));
        assert_eq!(asked.get(), 4);
        let _ = judged(Ok(0), &asked).await;
        assert_eq!(dependencies.breaker("payments").state(), State::Open);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_fallback_answers_for_errors_and_rejections_and_may_decline() {
    alone(|dependencies| async move {
        assert_eq!(with_fallback(Ok(7)).await, Ok(7));
        assert_eq!(with_fallback(Err(Failure::Declined)).await, Err(Failure::Declined));
        assert_eq!(with_fallback(Err(Failure::Down)).await, Ok(1));
        for _ in 0..5 {
            dependencies.breaker("payments").record_failure();
        }
        assert_eq!(with_fallback(Ok(7)).await, Ok(2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_way_out_of_the_body_is_counted() {
    for text in ["x", "0"] {
        alone(|dependencies| async move {
            for _ in 0..4 {
                assert!(parsed(text).await.is_err());
            }
            // A success between them begins the row anew: it was counted too.
            assert_eq!(parsed("7").await, Ok(7));
            for _ in 0..4 {
                assert!(parsed(text).await.is_err());
            }
            assert_eq!(dependencies.breaker("parser").state(), State::Closed);
            assert!(parsed(text).await.is_err());
            assert_eq!(dependencies.breaker("parser").state(), State::Open);
            assert_eq!(parsed("7").await, Err(rejected("circuit_open")));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_arguments_as_they_were() {
    alone(|_| async {
        let (asked, copies) = (Count::default(), Count::default());
        let order = Order {
            id: 41,
            copies: copies.clone(),
        };
        assert_eq!(takes(order, &asked).await, Ok(42));
        assert_eq!((asked.get(), copies.get()), (3, 1));
    })
    .await;
}
