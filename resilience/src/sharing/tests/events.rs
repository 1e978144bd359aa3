//! What is told, and in which order.

use futures_util::{FutureExt, StreamExt};

use super::{
    super::{Events, SharedEvent},
    *,
};

/// What has happened up to now, by its name.
async fn told(events: &mut Events) -> Vec<&'static str> {
    let mut told = Vec::new();
    soon().await;
    while let Some(Some(event)) = events.next().now_or_never() {
        told.push(match event {
            SharedEvent::Opened { .. } => "opened",
            SharedEvent::HalfOpened => "half-opened",
            SharedEvent::Closed { .. } => "closed",
            SharedEvent::Overridden(_) => "overridden",
            SharedEvent::Released => "released",
            SharedEvent::Degraded => "degraded",
            SharedEvent::Restored => "restored",
        });
    }
    told
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_along_reads_what_happens_in_its_order() {
    let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let (prober, follower) = (fleet.payments(0), fleet.payments(1));
    let (mut there, mut here) = (prober.events(), follower.events());

    fail(&prober, 2).await;
    assert_eq!(told(&mut there).await, ["opened"]);
    assert_eq!(told(&mut here).await, ["opened"]);

    call(&prober).await.expect_err("it is open");
    sleep(OPEN_FOR + Duration::from_millis(10)).await;
    call(&prober).await.expect("the probe");
    assert_eq!(told(&mut there).await, ["half-opened", "closed"]);
    assert_eq!(told(&mut here).await, ["closed"], "probes of others are not told");

    let order = Order::because("maintenance");
    operators.hold_open("payments", order).await.expect("the store is here");
    let mut both = told(&mut here).await;
    both.sort_unstable();
    assert_eq!(both, ["opened", "overridden"], "in one moment");

    let order = Order::because("a false alarm").lasting(Duration::from_secs(60));
    operators
        .hold_closed("payments", order)
        .await
        .expect("the store is here");
    let mut both = told(&mut here).await;
    both.sort_unstable();
    assert_eq!(both, ["closed", "overridden"], "in one moment");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(told(&mut here).await, ["released"]);

    fleet.stores[1].on_board(Answer::unavailable());
    sleep(Duration::from_secs(3)).await;
    assert_eq!(told(&mut here).await, ["degraded"], "once");
    mend(&fleet.stores[1]);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(told(&mut here).await, ["restored"]);
}

#[tokio::test(start_paused = true)]
async fn an_order_says_who_has_given_it_and_why_and_is_told_once() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let mut events = fleet.payments(0).events();
    let mut elsewhere = fleet.instances[0].breaker("search").events();
    let order = Order::because("maintenance").by("ada");
    operators.hold_open("payments", order).await.expect("the store is here");
    sleep(Duration::from_secs(30)).await;
    let mut orders = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let SharedEvent::Overridden(hold) = event {
            orders.push((hold.reason, hold.author));
        }
    }
    assert_eq!(orders, [("maintenance".to_owned(), "ada".to_owned())]);
    assert_eq!(told(&mut elsewhere).await, [""; 0], "of another breaker");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_misses_the_oldest_and_holds_nobody_up() {
    let fleet = Fleet::of(1, Sharing::system("shop")).await;
    let payments = fleet.payments(0);
    let mut slow = payments.events();
    for _ in 0..100 {
        fail(&payments, 2).await;
        call(&payments).await.expect_err("it is open");
        sleep(OPEN_FOR + Duration::from_millis(10)).await;
        call(&payments).await.expect("the probe");
        soon().await;
    }
    let late = told(&mut slow).await;
    assert_eq!(late.len(), 64, "of 300");
    assert_eq!(late.last(), Some(&"closed"));
    fail(&payments, 2).await;
    assert_eq!(told(&mut slow).await, ["opened"], "and goes on from there");
}
