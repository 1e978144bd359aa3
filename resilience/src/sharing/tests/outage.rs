//! The store says what it should not, or when it should not, or says nothing.

use futures_util::StreamExt;

use super::{super::SharedEvent, *};

#[tokio::test(start_paused = true)]
async fn a_push_ends_degraded_mode() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let (store, payments) = (&fleet.stores[0], fleet.payments(0));
    let mut events = payments.events();
    store.on_board(Answer::unavailable());
    assert_eq!(events.next().await, Some(SharedEvent::Degraded));
    sleep(Duration::from_secs(5)).await;
    mend(store);
    store.push();
    let restored = timeout(Duration::from_millis(10), events.next()).await;
    assert_eq!(restored, Ok(Some(SharedEvent::Restored)));
}

#[tokio::test(start_paused = true)]
async fn pushes_of_nothing_change_nothing() {
    let fleet = Fleet::of(2, Sharing::system("shop")).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    for _ in 0..50 {
        fleet.all(ScriptedStore::push);
        soon().await;
        assert_eq!(fleet.states(), [State::Open, State::Closed]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_push_tells_is_found_within_four_seconds() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    fleet.all(|store| _ = store.lose_pushes(true));
    fail(&fleet.payments(0), 2).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(fleet.states(), [State::Open; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_pushes_is_one_look_after_another() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let store = &fleet.stores[0];
    let before = store.board_calls().look;
    for _ in 0..1_000 {
        store.push();
    }
    soon().await;
    let looks = store.board_calls().look - before;
    assert!((1..=64).contains(&looks), "{looks} looks in a moment");

    store.on_board(Answer::ok(()).after(Duration::from_millis(20)));
    let before = store.board_calls().look;
    for _ in 0..1_000 {
        store.push();
        sleep(Duration::from_millis(1)).await;
    }
    let looks = store.board_calls().look - before;
    assert!((20..=52).contains(&looks), "{looks} looks of 20 ms in a second");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_state_checks_is_no_storm_of_looks() {
    let store = ScriptedStore::new().on_board(Answer::ok(()).after(Duration::from_millis(100)));
    let instance = instance(&store, &Sharing::system("shop"));
    let payments = instance.breaker("payments");
    let checks = (0..1_000).map(|_| payments.status());
    let known = futures_util::future::join_all(checks).await;
    assert!(known.iter().all(Option::is_some));
    assert!(store.board_calls().look <= 2, "{:?}", store.board_calls());
}

#[tokio::test(start_paused = true)]
async fn an_idle_instance_looks_once_a_second_and_writes_nothing() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let store = &fleet.stores[0];
    let before = store.board_calls();
    sleep(Duration::from_secs(60)).await;
    let after = store.board_calls();
    assert!((59..=61).contains(&(after.look - before.look)), "{before:?} {after:?}");
    assert_eq!(after.written(), 0);
    assert_eq!(after.changes, before.changes);
}

#[tokio::test(start_paused = true)]
async fn whoever_hangs_up_on_listeners_all_the_time_does_not_keep_the_store_from_its_peace() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let store = &fleet.stores[0];
    store.on_board(Answer::unavailable());
    let before = store.board_calls();
    for _ in 0..600 {
        store.hang_up();
        sleep(Duration::from_millis(100)).await;
    }
    let after = store.board_calls();
    let (asked, listened) = (after.asked() - before.asked(), after.changes - before.changes);
    assert!(
        asked <= 60 && listened <= 30,
        "asked {asked} times in a minute, listened {listened}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_cut_off_decides_alone_and_the_others_do_not_hear_of_it() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    cut(&fleet.stores[0], Answer::never());
    sleep(Duration::from_secs(5)).await;
    fail(&fleet.payments(0), 2).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fleet.states(), [State::Open, State::Closed, State::Closed]);
    sleep(OPEN_FOR).await;
    call(&fleet.payments(0))
        .await
        .expect("its own probe, and nobody's leave");
    assert_eq!(fleet.states(), [State::Closed; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_was_closed_behind_the_back_of_an_instance_ends_there_too() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 3]);
    cut(&fleet.stores[2], Answer::unavailable());
    for _ in 0..100 {
        _ = call(&fleet.payments(0)).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fleet.states()[..2], [State::Closed; 2]);
    mend(&fleet.stores[2]);
    sleep(Duration::from_secs(35)).await;
    assert_eq!(fleet.states(), [State::Closed; 3], "with no call there");
}

#[tokio::test(start_paused = true)]
async fn a_trip_in_an_outage_that_is_still_worth_telling_is_told_after_it() {
    let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
    cut(&fleet.stores[0], Answer::unavailable());
    fail(&fleet.payments(0), 2).await;
    sleep(Duration::from_millis(600)).await;
    assert_eq!(fleet.states(), [State::Open, State::Closed]);
    mend(&fleet.stores[0]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fleet.states(), [State::Open; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_everything_but_leases_leaves_no_circuit_open() {
    for answer in [Answer::unavailable(), Answer::never(), Answer::denied()] {
        let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
        fleet.all(|store| _ = store.on_leases(answer.clone()));
        fail(&fleet.payments(0), 2).await;
        soon().await;
        assert_eq!(fleet.states(), [State::Open; 2]);
        sleep(Duration::from_secs(30)).await;
        for _ in 0..50 {
            _ = call(&fleet.payments(1)).await;
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(fleet.states()[1], State::Closed);
        // Refused credentials are tried once a minute.
        sleep(Duration::from_secs(61)).await;
        assert_eq!(fleet.states(), [State::Closed; 2], "the others have heard of it");
    }
}
