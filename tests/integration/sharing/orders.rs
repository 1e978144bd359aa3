//! What operators order, on all instances.

use resilience::sharing::Order;
use tokio::time::Instant;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_obeyed_by_all_within_a_second_and_end() {
    let redis = RedisServer::start();
    let fleet = fleet(&redis, (0..5).map(|_| redis.url())).await;
    let payments = named(&fleet, "payments");
    let orders = fleet[4].shared_breakers().expect("it shares");
    let mut times = Vec::new();
    for _ in 0..3 {
        let given = Instant::now();
        orders
            .hold_open("payments", Order::because("maintenance"))
            .await
            .expect("it is taken");
        eventually("all are open", async || all_are(&payments, State::Open)).await;
        times.push(given.elapsed());
        orders.release("payments").await.expect("it is taken");
        eventually("all are closed", async || all_are(&payments, State::Closed)).await;
    }
    assert!(times.iter().min().expect("three") < &SECOND, "{times:?}");

    let short = Order::because("a short one").lasting(Duration::from_millis(300));
    orders.hold_open("payments", short).await.expect("it is taken");
    eventually("all are open", async || all_are(&payments, State::Open)).await;
    eventually("it ends", async || all_are(&payments, State::Closed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_outlast_redis_and_instances() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let old = fleet(&redis, (0..2).map(|_| redis.url())).await;
    let orders = old[0].shared_breakers().expect("it shares");
    orders
        .hold_open("payments", Order::because("maintenance").by("ada"))
        .await
        .expect("it is taken");
    let payments = named(&old, "payments");
    eventually("all are open", async || all_are(&payments, State::Open)).await;
    redis.stop();
    assert!(!call(&payments[1], true), "the last that is known");
    redis.restart();
    drop((orders, payments, old));
    let new = instance(redis.url());
    let payments = new.breaker("payments");
    assert!(payments.is_open().await);
    let status = payments.status().await.expect("the store has answered");
    let hold = status.hold.expect("it is held");
    assert_eq!((&*hold.reason, &*hold.author), ("maintenance", "ada"));
}
