//! How soon the others know, with and without a push.

use tokio::time::Instant;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_is_pushed_to_all_within_a_tenth_of_a_second() {
    let redis = RedisServer::start();
    let fleet = fleet(&redis, (0..5).map(|_| redis.url())).await;
    let mut times = Vec::new();
    for nth in 0..5 {
        let breakers = named(&fleet, &format!("payments-{nth}"));
        trip(&breakers[0]);
        trip(&breakers[1]);
        let tripped = Instant::now();
        eventually("all are open", async || all_are(&breakers, State::Open)).await;
        times.push(tripped.elapsed());
    }
    times.sort();
    // A busy machine may be slow, but a poll would be slow each time.
    assert!(times[0] < Duration::from_millis(100), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_is_seen_by_all_within_four_seconds_without_a_push() {
    let redis = RedisServer::start();
    redis.cli(&["ACL", "SETUSER", "default", "resetchannels"]);
    let fleet: Vec<_> = (0..5).map(|_| instance(redis.url())).collect();
    let instances = format!("{KEYS}instances");
    eventually("all are seen", async || redis.cli(&["ZCARD", &instances]) == "5").await;
    assert_eq!(redis.cli(&["PUBSUB", "CHANNELS"]), "", "nobody may listen");
    let breakers = named(&fleet, "payments");
    trip(&breakers[0]);
    trip(&breakers[1]);
    let tripped = Instant::now();
    eventually("all are open", async || all_are(&breakers, State::Open)).await;
    assert!(tripped.elapsed() < Duration::from_secs(4), "{:?}", tripped.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_later_adopts_what_there_is() {
    let redis = RedisServer::start();
    let fleet = fleet(&redis, (0..2).map(|_| redis.url())).await;
    let held = fleet[0].shared_breakers().expect("it shares");
    held.hold_open("payments", Default::default())
        .await
        .expect("it is taken");
    let before = redis.cli(&["HGETALL", &format!("{KEYS}hold:payments")]);
    let late = instance(redis.url());
    assert!(late.breaker("payments").is_open().await, "the first look is waited for");
    assert_eq!(redis.cli(&["HGETALL", &format!("{KEYS}hold:payments")]), before);
}
