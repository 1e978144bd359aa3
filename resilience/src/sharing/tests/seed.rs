//! What users of such a service are promised, a test for each row and each claim.

use futures_util::StreamExt;
use tokio::time::sleep_until;
use tracing::Level;

use super::{
    super::{Core, SharedEvent},
    log::Log,
    *,
};
use crate::store::board::Board;

fn shop() -> Sharing {
    Sharing::system("shop").with_any()
}

/// A fleet of two in which all know that the breaker is open.
async fn open_fleet() -> Fleet {
    let fleet = Fleet::of(2, shop()).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 2]);
    fleet
}

#[tokio::test(start_paused = true)]
async fn init_fails_it_warns_and_retries_with_backoff_while_breakers_are_closed() {
    let log = Log::start();
    let store = ScriptedStore::new().down();
    let instance = instance(&store, &shop());
    let payments = instance.breaker("payments");
    call(&payments).await.expect("closed");
    let start = Instant::now();
    // 250 ms after the first failure, 500 ms after the second, and then in peace.
    for (at, looks) in [
        (10, 1),
        (240, 1),
        (260, 2),
        (740, 2),
        (760, 3),
        (30_700, 3),
        (30_800, 4),
    ] {
        sleep_until(start + Duration::from_millis(at)).await;
        assert_eq!(store.board_calls().asked(), looks, "after {at} ms");
        call(&payments).await.expect("closed");
    }
    assert_eq!(log.count(Level::WARN, "trying again"), 1);
    assert_eq!(log.count(Level::ERROR, ""), 0);
    assert!(payments.is_closed().await && !payments.is_open().await);

    mend(&store);
    sleep(Duration::from_secs(31)).await;
    at_once(payments.status()).await.expect("it was retried");
}

#[tokio::test(start_paused = true)]
async fn unreachable_during_protect_with_no_cache_runs_the_function() {
    for answer in [Answer::never(), Answer::unavailable(), Answer::denied()] {
        let store = ScriptedStore::new();
        cut(&store, answer);
        let instance = instance(&store, &shop());
        let payments = instance.breaker("payments");
        for _ in 0..100 {
            call(&payments).await.expect("closed");
            sleep(Duration::from_millis(500)).await;
        }
        // And the breaker of its own goes on.
        fail(&payments, 2).await;
        assert!(matches!(call(&payments).await, Err(CallError::Open(_))));
        sleep(OPEN_FOR + Duration::from_secs(4)).await;
        call(&payments).await.expect("a probe, alone");
        call(&payments).await.expect("closed");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_during_protect_with_a_cache_goes_by_it() {
    for answer in [Answer::never(), Answer::unavailable(), Answer::denied()] {
        let fleet = open_fleet().await;
        fleet.all(|store| cut(store, answer.clone()));
        for _ in 0..49 {
            let refused = call(&fleet.payments(1)).await;
            assert!(matches!(refused, Err(CallError::Open(_))), "{refused:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_during_is_open_or_is_closed_answers_safe_defaults() {
    for answer in [Answer::never(), Answer::unavailable(), Answer::denied()] {
        let store = ScriptedStore::new();
        cut(&store, answer);
        let instance = instance(&store, &shop());
        let payments = instance.breaker("payments");
        assert!(!payments.is_open().await && payments.is_closed().await);
        sleep(Duration::from_secs(5)).await;
        at_once(async { assert!(!payments.is_open().await && payments.is_closed().await) }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_during_is_open_or_is_closed_with_a_cache_goes_by_it() {
    let fleet = open_fleet().await;
    fleet.all(|store| cut(store, Answer::never()));
    sleep(Duration::from_secs(4)).await;
    let payments = fleet.payments(1);
    at_once(async { assert!(payments.is_open().await && !payments.is_closed().await) }).await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_during_status_is_none() {
    for answer in [Answer::never(), Answer::unavailable(), Answer::denied()] {
        let store = ScriptedStore::new();
        cut(&store, answer);
        let instance = instance(&store, &shop());
        let payments = instance.breaker("payments");
        assert_eq!(payments.status().await, None);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(at_once(payments.status()).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_fail_they_are_tried_once_a_minute_and_cached_state_is_used_until_a_new_password_heals() {
    let log = Log::start();
    let fleet = Fleet::of(1, shop()).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let order = Order::because("maintenance");
    operators.hold_open("payments", order).await.expect("the store is here");
    soon().await;
    let (store, payments) = (&fleet.stores[0], fleet.payments(0));
    cut(store, Answer::denied());
    sleep(Duration::from_secs(2)).await;
    let before = store.board_calls();
    for _ in 0..600 {
        assert!(matches!(call(&payments).await, Err(CallError::Open(_))));
        let status = at_once(payments.status()).await.expect("what was known");
        assert_eq!(status.hold.expect("it is held").reason, "maintenance");
        sleep(Duration::from_secs(1)).await;
    }
    let after = store.board_calls();
    assert_eq!(after.asked() - before.asked(), 10, "in ten minutes");
    assert!(
        after.changes - before.changes <= 14,
        "nor are pushes asked for much more often"
    );
    assert_eq!(log.count(Level::ERROR, ""), 1);
    assert_eq!(log.count(Level::ERROR, "credentials"), 1);

    operators.release("payments").await.expect_err("no credentials");
    let elsewhere = instance(&fleet.store, &fleet.sharing);
    let elsewhere = elsewhere.shared_breakers().expect("it is shared");
    assert!(elsewhere.release("payments").await.expect("the store is here"));
    mend(store);
    sleep(Duration::from_secs(61)).await;
    call(&payments).await.expect("it has been released");
    assert_eq!(log.count(Level::ERROR, ""), 1);
}

#[tokio::test(start_paused = true)]
async fn init_never_throws_even_with_invalid_credentials() {
    let log = Log::start();
    let store = ScriptedStore::new();
    cut(&store, Answer::denied());
    let instance = instance(&store, &shop());
    let payments = instance.breaker("payments");
    for _ in 0..300 {
        call(&payments).await.expect("as if there were no breaker");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(log.count(Level::ERROR, "credentials"), 1);
    assert_eq!(log.count(Level::WARN, ""), 0);
    assert_eq!(store.board_calls().asked(), 5, "once a minute");
}

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_are_thirty_seconds_in_which_the_store_is_not_asked() {
    let fleet = Fleet::of(1, shop()).await;
    let (store, payments) = (&fleet.stores[0], fleet.payments(0));
    let mut events = payments.events();
    cut(store, Answer::unavailable());
    let before = store.board_calls().asked();
    assert_eq!(events.next().await, Some(SharedEvent::Degraded));
    let degraded = Instant::now();
    assert_eq!(store.board_calls().asked() - before, 3);
    fail(&payments, 2).await;
    while degraded.elapsed() < Duration::from_millis(29_900) {
        _ = call(&payments).await;
        at_once(payments.is_open()).await;
        at_once(payments.status()).await.expect("what was known");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.board_calls().asked() - before, 3, "nothing in that time");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(store.board_calls().asked() - before, 4, "once after it");
}

#[tokio::test(start_paused = true)]
async fn degraded_mode_clears_by_itself_when_the_store_is_back() {
    let fleet = Fleet::of(1, shop()).await;
    let (store, payments) = (&fleet.stores[0], fleet.payments(0));
    let mut events = payments.events();
    store.on_board(Answer::unavailable());
    assert_eq!(events.next().await, Some(SharedEvent::Degraded));
    mend(store);
    let restored = timeout(Duration::from_millis(30_100), events.next()).await;
    assert_eq!(restored, Ok(Some(SharedEvent::Restored)));
}

#[tokio::test(start_paused = true)]
async fn a_flaky_store_is_never_a_latency_spike() {
    let fleet = Fleet::of(3, shop()).await;
    let late = |millis| Answer::ok(()).after(Duration::from_millis(millis));
    let moods = [
        late(0),
        Answer::unavailable(),
        late(400),
        Answer::never(),
        late(999),
        Answer::denied(),
        late(1_500),
    ];
    for step in 0..700_usize {
        let nth = step % 3;
        let mood = &moods[step % moods.len()];
        fleet.stores[nth].on_board(mood.clone()).on_changes(mood.clone());
        if step % 50 == 0 {
            fleet.stores[nth].hang_up();
        }
        for nth in 0..3 {
            call(&fleet.payments(nth)).await.expect("the dependency is well");
            at_once(fleet.payments(nth).is_closed()).await;
        }
        sleep(Duration::from_millis(170)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_first_look_has_said_is_fresh_for_30_seconds_and_what_later_ones_have_for_3() {
    let core = Core::new(shop(), Arc::new(ScriptedStore::new()));
    let board = || Board {
        instances: 1,
        entries: Vec::new(),
    };
    for fresh_for in [30_000, 3_000, 3_000] {
        core.learn(board());
        core.obeyed();
        sleep(Duration::from_millis(fresh_for - 1)).await;
        at_once(core.check()).await.expect("it is known");
        assert!(!core.look_now.load(Ordering::Relaxed), "fresh for {fresh_for} ms");
        sleep(Duration::from_millis(1)).await;
        at_once(core.check()).await.expect("stale, while it is looked up");
        assert!(core.look_now.swap(false, Ordering::Relaxed));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_known_last_serves_when_all_caches_are_over() {
    let fleet = Fleet::of(1, shop()).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let order = Order::because("maintenance");
    operators.hold_open("payments", order).await.expect("the store is here");
    soon().await;
    fleet.all(|store| cut(store, Answer::never()));
    sleep(Duration::from_secs(60 * 60)).await;
    let payments = fleet.payments(0);
    let status = at_once(payments.status()).await.expect("it was known once");
    assert_eq!(status.reason.as_deref(), Some("maintenance"));
    assert!(at_once(payments.is_open()).await);
}

#[tokio::test(start_paused = true)]
async fn a_state_check_has_500_ms_and_the_fetch_goes_on_to_update_the_cache() {
    let store = ScriptedStore::new().on_board(Answer::ok(()).after(Duration::from_millis(800)));
    let instance = instance(&store, &shop());
    let payments = instance.breaker("payments");
    let start = Instant::now();
    assert_eq!(payments.status().await, None);
    assert_eq!(start.elapsed(), Duration::from_millis(500));
    sleep(Duration::from_millis(310)).await;
    at_once(payments.status()).await.expect("the fetch went on");
    assert_eq!(store.board_calls().look, 1);
}
