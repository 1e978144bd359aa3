//! Whose word counts, and for how long.

use super::*;

async fn trip(fleet: &Fleet, nth: usize) {
    fail(&fleet.payments(nth), 2).await;
    soon().await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_more_than_there_are_is_all_of_them() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_quorum(10)).await;
    trip(&fleet, 0).await;
    trip(&fleet, 1).await;
    assert_eq!(fleet.states(), [State::Open, State::Open, State::Closed]);
    // Told apart from an opening of its own.
    let observer = instance(&fleet.store.beside(), &fleet.sharing);
    soon().await;
    assert_eq!(observer.breaker("payments").circuit().state(), State::Closed);
    trip(&fleet, 2).await;
    assert_eq!(observer.breaker("payments").circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn words_that_are_too_far_apart_make_no_quorum() {
    let window = Duration::from_secs(2);
    let fleet = Fleet::of(3, Sharing::system("shop").with_window(window)).await;
    trip(&fleet, 0).await;
    sleep(window).await;
    trip(&fleet, 1).await;
    assert_eq!(fleet.states(), [State::Open, State::Open, State::Closed]);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_recovered_takes_its_word_back() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_window(Duration::from_secs(600))).await;
    trip(&fleet, 0).await;
    sleep(OPEN_FOR + Duration::from_millis(10)).await;
    call(&fleet.payments(0)).await.expect("its own business, its own probe");
    soon().await;
    trip(&fleet, 1).await;
    assert_eq!(fleet.states(), [State::Closed, State::Open, State::Closed]);
    trip(&fleet, 2).await;
    assert_eq!(fleet.states(), [State::Open; 3], "two at a time still are one");
}

#[tokio::test(start_paused = true)]
async fn one_bad_node_opens_nobody_else_for_an_hour() {
    let fleet = Fleet::of(3, Sharing::system("shop")).await;
    let end = Instant::now() + Duration::from_secs(60 * 60);
    while Instant::now() < end {
        let failed = at_once(fleet.payments(0).protect(async { Err::<(), _>("no route") })).await;
        failed.expect_err("it is broken here");
        for nth in 1..3 {
            call(&fleet.payments(nth)).await.expect("it is well here");
        }
        sleep(Duration::from_millis(500)).await;
    }
    assert_ne!(fleet.states()[0], State::Closed);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_gone_for_a_minute_is_not_waited_for() {
    let mut fleet = Fleet::of(2, Sharing::system("shop")).await;
    drop(fleet.instances.remove(0));
    sleep(Duration::from_secs(61)).await;
    trip(&fleet, 0).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let listed = operators.list().await.expect("the store is here");
    assert_eq!(listed[0].state, State::Open, "{listed:?}");
}
