//! Slots in use, under tokio's paused time.

use std::{future::Future, pin::pin, time::Duration};

use futures_util::poll;
use tokio::time::{Instant, advance};

use super::super::*;
use crate::breaker::Outcome;

const MS: Duration = Duration::from_millis(1);

fn limit(slots: u32, queue: u32) -> ConcurrencyLimit {
    ConcurrencyLimit::new("test", ConcurrencyConfig::new(slots).with_queue(queue)).expect("valid")
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_it_refuses_at_once() {
    let limit = limit(2, 0);
    let (first, _second) = (
        limit.try_acquire().unwrap(),
        limit.acquire(Priority::Default).await.unwrap(),
    );
    let begun = Instant::now();
    let refused = limit.acquire(Priority::Critical).await.unwrap_err();
    assert_eq!((refused.reason(), begun.elapsed()), (Shed::QueueFull, Duration::ZERO));
    assert_eq!(limit.try_acquire().unwrap_err().reason(), Shed::QueueFull);
    assert_eq!((limit.in_flight(), limit.shed(Shed::QueueFull)), (2, 2));
    drop(first);
    assert!(limit.try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_around_it_shortens_the_wait() {
    let limit = limit(1, 4);
    let _slot = limit.try_acquire().unwrap();
    let begun = Instant::now();
    // The scope and the wait end at one instant: either may say so.
    let late = deadline::scope(30 * MS, limit.acquire(Priority::Default)).await;
    assert!(!matches!(late, Ok(Ok(_))));
    assert_eq!(begun.elapsed(), 30 * MS);
    assert_eq!(limit.queued(), 0);
}

#[tokio::test(start_paused = true)]
async fn whose_time_is_spent_is_passed_over() {
    let limit = limit(1, 4);
    let slot = limit.try_acquire().unwrap();
    let mut hurried = Box::pin(deadline::scope(10 * MS, limit.acquire(Priority::Critical)));
    let mut patient = pin!(limit.acquire(Priority::Default));
    assert!(poll!(hurried.as_mut()).is_pending() && poll!(patient.as_mut()).is_pending());
    // Nobody has polled the hurried one since.
    advance(11 * MS).await;
    drop(slot);
    assert!(patient.await.is_ok());
    assert_eq!(limit.shed(Shed::QueueTimeout), 1);
    drop(hurried);
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_granted_to_somebody_who_has_gone_goes_on() {
    let limit = limit(1, 4);
    let slot = limit.try_acquire().unwrap();
    let mut gone = Box::pin(limit.acquire(Priority::Default));
    let mut next = pin!(limit.acquire(Priority::Default));
    assert!(poll!(gone.as_mut()).is_pending() && poll!(next.as_mut()).is_pending());
    drop(slot);
    assert_eq!(
        (limit.in_flight(), limit.queued()),
        (1, 1),
        "granted, and not yet collected"
    );
    drop(gone);
    let slot = next.await.expect("it is next");
    assert_eq!((limit.in_flight(), limit.queued()), (1, 0));
    drop(slot);
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_passes_those_who_wait() {
    let limit = limit(1, 4);
    let slot = limit.try_acquire().unwrap();
    let mut waits = pin!(limit.acquire(Priority::Background));
    assert!(poll!(waits.as_mut()).is_pending());
    drop(slot);
    // The slot is as good as taken.
    assert!(limit.try_acquire().is_err());
    assert!(waits.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_with_the_last_moment_is_taken() {
    let limit = limit(1, 1);
    let slot = limit.try_acquire().unwrap();
    let mut waits = pin!(limit.acquire(Priority::Default));
    assert!(poll!(waits.as_mut()).is_pending());
    advance(99 * MS).await;
    drop(slot);
    // Late to look, but called in time.
    advance(10 * MS).await;
    assert!(waits.await.is_ok());
}

async fn work(limit: &ConcurrencyLimit, clock: &Clock, took: Duration, outcome: Outcome) {
    let mut slot = limit.acquire(Priority::Default).await.expect("a slot");
    clock.advance(took);
    slot.served(outcome);
    // However long the answer takes to send.
    clock.advance(1_000 * took);
    slot.served(Outcome::Failure);
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_learns_from_the_work_and_not_from_the_sending() {
    let config = ConcurrencyConfig::new(64).with_adaptive().with_floor(2);
    let clock = Clock::manual();
    let limit = ConcurrencyLimit::new("test", config)
        .expect("valid")
        .with_clock(clock.clone());
    assert_eq!(limit.limit(), 5, "a look at a quarter of 20");
    for _ in 0..200 {
        work(&limit, &clock, MS, Outcome::Success).await;
    }
    assert_eq!(limit.limit(), 20, "one at a time is a modest load");
    for _ in 0..500 {
        work(&limit, &clock, MS, Outcome::Failure).await;
    }
    assert_eq!(limit.limit(), 2, "the floor");
    // Those above a lower limit go on, and nobody comes in before they have gone.
    let held = [limit.try_acquire().unwrap(), limit.try_acquire().unwrap()];
    assert!(limit.try_acquire().is_err());
    drop(held);
}

#[test]
fn futures_and_slots_can_move_between_threads() {
    fn is_send<T: Send + 'static>(_: &T) {}
    fn sends<F: Future + Send>(_: &F) {}
    let limit = limit(1, 1);
    sends(&limit.acquire(Priority::Default));
    is_send(&limit.try_acquire().unwrap());
}
