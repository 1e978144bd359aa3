//! Requests that end before they are answered.

use std::{future::Future, panic::AssertUnwindSafe, pin::pin, task::Poll};

use futures_util::FutureExt;
use resilience_tests::eventually;
use tokio::time::sleep;

use super::*;
use crate::chain::ms;

/// Takes a while, and panics for `mallory`.
#[resilient(
    lockout(3, "15m", key = account("json:/username")),
    lockout(8, "15m", key = ip),
    deadline = "1s"
)]
#[handler]
async fn slow(body: String) -> StatusCode {
    sleep(if body.contains("forever") {
        Duration::from_secs(60)
    } else {
        ms(30)
    })
    .await;
    assert!(!body.contains("mallory"), "a bug of the handler's");
    StatusCode::UNAUTHORIZED
}

/// Polls the request `polls` times, as its waits end, and drops it. Whether it was done by then.
async fn drop_after(app: &impl Endpoint, polls: usize) -> bool {
    let mut call = pin!(app.get_response(attempt("ada", "guess")));
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        call.as_mut().poll(cx).map(|_| true)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_before_the_handler_has_its_attempts_back_and_who_hangs_up_on_it_does_not() {
    let mut polls = 1;
    loop {
        let store = ScriptedStore::new().on_begin(Answer::ok(()).after(ms(10)));
        let app = app(slow, over(&store));
        let done = drop_after(&app, polls).await;
        let begun = store.calls().begin;
        // The first two waits are for the two tallies, the third is the handler's.
        match polls {
            1 => {
                eventually("the address has it back", async || store.settled().len() == 1).await;
                assert_eq!(store.settled(), [(address(), Settle::GiveBack)]);
            }
            2 => {
                eventually("both have it back", async || store.settled().len() == 2).await;
                assert!(store.settled().iter().all(|(_, settle)| *settle == Settle::GiveBack));
            }
            _ => {
                eventually("both have failed", async || store.settled().len() == 2).await;
                assert!(store.settled().iter().all(|(_, settle)| *settle == Settle::Fail));
                sleep(Duration::from_secs(5)).await;
                assert_eq!((begun, store.settled().len()), (2, 2), "after {polls} polls");
            }
        }
        if done {
            assert!(polls > 3, "{polls}");
            break;
        }
        polls += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_too_slow_or_panics_has_failed_the_attempt() {
    let store = ScriptedStore::new();
    let app = app(slow, over(&store));
    assert_eq!(
        ask(&app, attempt("ada", "forever")).await.summary(),
        (504, "timeout".into())
    );
    let panicked = AssertUnwindSafe(ask(&app, attempt("mallory", "guess")))
        .catch_unwind()
        .await;
    assert!(panicked.is_err());
    eventually("both have failed", async || store.settled().len() == 4).await;
    assert!(store.settled().iter().all(|(_, settle)| *settle == Settle::Fail));
    assert_eq!((store.calls().begin, store.calls().settle), (4, 2));
}

/// The client is gone while its success is being settled: it counts all the same.
#[tokio::test(start_paused = true)]
async fn a_success_is_settled_though_nobody_waits_for_it() {
    let store = ScriptedStore::new().on_settle(Answer::ok(()).after(ms(20)));
    let app = app(login, over(&store));
    {
        let mut call = pin!(app.get_response(attempt("ada", "200")));
        let poll = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready()));
        assert!(!poll.await, "it waits for the settling");
    }
    eventually("it is settled", async || store.settled().len() == 2).await;
    assert!(store.settled().contains(&(account("ada"), Settle::Clear)));
}
