//! Who is served, when, and who is not.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::task::noop_waker_ref;
use tokio::time::Instant;

use super::super::*;
use crate::breaker::Outcome;

const MS: Duration = Duration::from_millis(1);

fn limit(config: ConcurrencyConfig) -> ConcurrencyLimit {
    ConcurrencyLimit::new("test", config).expect("valid settings")
}

/// One place and a queue of so many.
fn narrow(queue: u32) -> ConcurrencyLimit {
    limit(ConcurrencyConfig::new(1).with_queue(queue))
}

fn taken(limit: &ConcurrencyLimit) -> Slot {
    limit.try_acquire(Priority::Default).expect("a place is free")
}

type Acquiring<'a> = Pin<Box<dyn Future<Output = Result<Slot, Overloaded>> + Send + 'a>>;

/// A caller that has come and waits.
fn waiting(limit: &ConcurrencyLimit, priority: Priority) -> Acquiring<'_> {
    let mut acquiring = Box::pin(limit.acquire(priority));
    assert!(poll(&mut acquiring).is_pending());
    acquiring
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(noop_waker_ref()))
}

fn reason(answer: Poll<Result<Slot, Overloaded>>) -> Shed {
    match answer {
        Poll::Ready(Err(overloaded)) => overloaded.reason(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_the_answer_is_instant() {
    let limit = limit(ConcurrencyConfig::new(2));
    let slots = [taken(&limit), taken(&limit)];
    let started = Instant::now();
    let refused = limit.acquire(Priority::Critical).await.unwrap_err();
    assert_eq!(refused.reason(), Shed::QueueFull);
    assert_eq!(refused.name(), "test");
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    assert_eq!(refused.to_string(), "`test` is overloaded: no place is free");
    assert_eq!(started.elapsed(), Duration::ZERO);
    drop(slots);
    assert_eq!((limit.in_flight(), limit.limit(), limit.shed().total()), (0, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn service_is_by_priority_and_then_first_come() {
    let limit = narrow(8);
    let first = taken(&limit);
    let order = Arc::new(Mutex::new(Vec::new()));
    let callers = [
        ("b1", Priority::Background),
        ("d1", Priority::Default),
        ("c1", Priority::Critical),
        ("d2", Priority::Default),
        ("c2", Priority::Critical),
        ("b2", Priority::Background),
    ];
    let mut tasks = Vec::new();
    for (name, priority) in callers {
        let (limit, order) = (limit.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let slot = limit.acquire(priority).await.expect("there is time");
            order.lock().unwrap().push(name);
            tokio::time::sleep(MS).await;
            drop(slot);
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(limit.queued(), 6);
    drop(first);
    for task in tasks {
        task.await.expect("no caller panics");
    }
    assert_eq!(*order.lock().unwrap(), ["c1", "c2", "d1", "d2", "b1", "b2"]);
    assert_eq!((limit.in_flight(), limit.queued(), limit.shed().total()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_barges_past_a_waiter() {
    let limit = narrow(4);
    let first = taken(&limit);
    let mut waits = waiting(&limit, Priority::Background);
    drop(first);
    // The place is the waiter's from the moment of its release, even before it wakes up.
    assert!(limit.try_acquire(Priority::Critical).is_err());
    assert_eq!(limit.in_flight(), 1);
    assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_sheds_the_newest_of_the_lowest_priority() {
    let limit = narrow(3);
    let _first = taken(&limit);
    let mut old = waiting(&limit, Priority::Background);
    let mut new = waiting(&limit, Priority::Background);
    let mut default = waiting(&limit, Priority::Default);

    let mut another = Box::pin(limit.acquire(Priority::Background));
    assert_eq!(reason(poll(&mut another)), Shed::QueueFull);

    let mut critical = waiting(&limit, Priority::Critical);
    assert_eq!(reason(poll(&mut new)), Shed::Displaced);
    let mut second = waiting(&limit, Priority::Critical);
    assert_eq!(reason(poll(&mut old)), Shed::Displaced);
    let mut third = waiting(&limit, Priority::Critical);
    assert_eq!(reason(poll(&mut default)), Shed::Displaced);
    let mut fourth = Box::pin(limit.acquire(Priority::Critical));
    assert_eq!(reason(poll(&mut fourth)), Shed::QueueFull);

    for waits in [&mut critical, &mut second, &mut third] {
        assert!(poll(waits).is_pending());
    }
    let shed = limit.shed();
    assert_eq!((shed.queue_full, shed.displaced, shed.queue_timeout), (2, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_displaced_is_woken_at_once() {
    let limit = narrow(1);
    let _first = taken(&limit);
    let task = tokio::spawn({
        let limit = limit.clone();
        async move { limit.acquire(Priority::Background).await.map(drop) }
    });
    while limit.queued() == 0 {
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    let _critical = waiting(&limit, Priority::Critical);
    let refused = task.await.expect("no panic").unwrap_err();
    assert_eq!(refused.reason(), Shed::Displaced);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_queue_timeout() {
    let limit = limit(ConcurrencyConfig::new(1).with_queue(1).with_queue_timeout(30 * MS));
    let _first = taken(&limit);
    let started = Instant::now();
    let refused = limit.acquire(Priority::Critical).await.unwrap_err();
    assert_eq!(refused.reason(), Shed::QueueTimeout);
    assert!((30..=31).contains(&started.elapsed().as_millis()));
    assert_eq!((limit.queued(), limit.shed().queue_timeout), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_callers_deadline() {
    let limit = narrow(1);
    let _first = taken(&limit);
    let started = Instant::now();
    let until = limit.acquire_until(Priority::Default, started + 20 * MS).await;
    assert_eq!(until.unwrap_err().reason(), Shed::QueueTimeout);
    assert!((20..=21).contains(&started.elapsed().as_millis()));

    // The scope's own timer drops the call at the same instant.
    let scoped = deadline::scope(10 * MS, limit.acquire(Priority::Default)).await;
    assert!(matches!(scoped, Err(_) | Ok(Err(_))));
    // A scope shortens a later deadline, too.
    let both = deadline::scope(
        10 * MS,
        limit.acquire_until(Priority::Default, Instant::now() + 50 * MS),
    )
    .await;
    assert!(matches!(both, Err(_) | Ok(Err(_))));
    assert!((40..=43).contains(&started.elapsed().as_millis()));
    assert_eq!(limit.queued(), 0);

    let spent = limit.acquire_until(Priority::Default, started).await;
    assert_eq!(spent.unwrap_err().reason(), Shed::QueueTimeout);
}

#[tokio::test(start_paused = true)]
async fn who_has_no_time_left_is_skipped_although_its_timer_has_not_fired() {
    let clock = Clock::manual();
    let limit = narrow(4).with_clock(clock.clone());
    let first = taken(&limit);
    let mut spent = Box::pin(limit.acquire_until(Priority::Critical, Instant::now() + 10 * MS));
    assert!(poll(&mut spent).is_pending());
    let mut waits = waiting(&limit, Priority::Background);
    clock.advance(10 * MS);
    drop(first);
    assert_eq!(reason(poll(&mut spent)), Shed::QueueTimeout);
    assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_skips_all_and_wedges_nothing() {
    let clock = Clock::manual();
    let limit = narrow(2).with_clock(clock.clone());
    let first = taken(&limit);
    let mut spent = [Priority::Critical, Priority::Default].map(|priority| waiting(&limit, priority));
    clock.advance(Duration::from_secs(1 << 30));
    // A full queue of the spent is no reason to refuse anybody.
    let mut fresh = waiting(&limit, Priority::Background);
    for waits in &mut spent {
        assert_eq!(reason(poll(waits)), Shed::QueueTimeout);
    }
    drop(first);
    assert!(matches!(poll(&mut fresh), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_leaves_no_trace() {
    let limit = narrow(2);
    let first = taken(&limit);
    let gone = waiting(&limit, Priority::Critical);
    let mut stays = waiting(&limit, Priority::Default);
    drop(gone);
    assert_eq!(limit.queued(), 1);
    drop(first);
    assert!(matches!(poll(&mut stays), Poll::Ready(Ok(_))));
    assert_eq!((limit.in_flight(), limit.shed().total()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_meets_a_dropped_waiter_goes_on() {
    let limit = narrow(2);
    let first = taken(&limit);
    let gone = waiting(&limit, Priority::Default);
    let mut next = waiting(&limit, Priority::Default);
    drop(first);
    assert_eq!((limit.in_flight(), limit.queued()), (1, 1));
    drop(gone);
    assert_eq!((limit.in_flight(), limit.queued()), (1, 0));
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_frees_the_place() {
    let limit = narrow(1);
    let task = tokio::spawn({
        let limit = limit.clone();
        async move {
            let _slot = limit.acquire(Priority::Default).await.expect("a place is free");
            panic!("the handler's fault");
        }
    });
    assert!(task.await.is_err());
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_waker_is_the_one_that_is_woken() {
    let limit = narrow(1);
    let first = taken(&limit);
    let mut acquiring = pin!(limit.acquire(Priority::Default));
    assert!(
        acquiring
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    // Polled by this task from here on, as when a future moves between tasks.
    let task = poll_fn(|cx| acquiring.as_mut().poll(cx));
    let (slot, ()) = tokio::join!(task, async { drop(first) });
    assert!(slot.is_ok());
}

#[test]
fn senseless_settings_are_named() {
    let sound = ConcurrencyConfig::new(1);
    for (config, option) in [
        (ConcurrencyConfig::new(0), "limit"),
        (ConcurrencyConfig::new(MAX_LIMIT + 1), "limit"),
        (sound.clone().with_queue(MAX_QUEUE + 1), "queue"),
        (
            sound.clone().with_queue(1).with_queue_timeout(Duration::ZERO),
            "queue_timeout",
        ),
        (
            sound.clone().with_queue_timeout(MAX_QUEUE_TIMEOUT + MS),
            "queue_timeout",
        ),
    ] {
        let error = ConcurrencyLimit::new("test", config).unwrap_err();
        assert_eq!(error.option(), option);
        assert!(
            error
                .to_string()
                .starts_with(&format!("concurrency option `{option}` must be"))
        );
    }
    let largest = ConcurrencyConfig::new(MAX_LIMIT)
        .with_queue(MAX_QUEUE)
        .with_queue_timeout(MAX_QUEUE_TIMEOUT);
    assert_eq!(largest.validate(), Ok(()));
    // Nobody waits where there is no queue.
    assert_eq!(sound.with_queue_timeout(Duration::ZERO).validate(), Ok(()));
}

#[test]
fn priorities_are_words() {
    for priority in [Priority::Critical, Priority::Default, Priority::Background] {
        assert_eq!(priority.as_str().parse(), Ok(priority));
        assert_eq!(priority.to_string(), priority.as_str());
    }
    for word in ["", "Critical", " default", "low"] {
        assert_eq!(word.parse::<Priority>(), Err(UnknownPriority));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_being_sent_do_not_count_against_what_adapts() {
    let config = ConcurrencyConfig::new(12).with_adaptive(Adaptive::default());
    let limit = ConcurrencyLimit::new("downloads", config).unwrap();
    let take = || limit.try_acquire(Priority::Default);
    let working: Vec<_> = (0..8).map(|_| take().unwrap()).collect();
    assert_eq!(limit.limit(), 8);
    assert!(take().is_err());
    let mut sending = Vec::new();
    for mut slot in working {
        slot.served(Outcome::Success);
        sending.push(slot);
    }
    // As many as are configured, and no more, however few of them work.
    let working: Vec<_> = (0..4).map(|_| take().unwrap()).collect();
    assert_eq!(limit.in_flight(), 12);
    assert!(take().is_err());
    drop(sending);
    assert_eq!(limit.in_flight(), 4);
    drop(working);
    assert!(limit.shared.semaphore.with(|state| state.is_idle()));
    assert_eq!((0..20).filter_map(|_| take().ok()).collect::<Vec<_>>().len(), 8);
}
