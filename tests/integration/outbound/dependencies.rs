//! Breakers and bulkheads by name, in the registry around the call.

use resilience::{
    Dependencies,
    breaker::{BreakerConfig, State},
    outbound,
};
use tokio::sync::Notify;

use super::{Answer, Failure, alone, rejected};

#[outbound(breaker = "payments")]
async fn quote(answer: Answer) -> Answer {
    answer
}

struct Payments;

impl Payments {
    #[outbound(breaker = "payments")]
    async fn charge(&self) -> Answer {
        Ok(1)
    }

    #[outbound(bulkhead(1))]
    async fn one_at_a_time(&self, go: &Notify) -> Answer {
        go.notified().await;
        Ok(1)
    }
}

struct Search;

impl Search {
    #[outbound(bulkhead(1))]
    async fn one_at_a_time(&self) -> Answer {
        Ok(2)
    }
}

#[outbound(breaker = "mail", bulkhead(1))]
async fn send(go: &Notify) -> Answer {
    go.notified().await;
    Ok(1)
}

#[outbound(breaker = "mail", bulkhead(1))]
async fn receive() -> Answer {
    Ok(2)
}

#[outbound(breaker = "mail", bulkhead(2))]
async fn look() -> Answer {
    Ok(3)
}

async fn fail(times: u32) {
    for _ in 0..times {
        assert_eq!(quote(Err(Failure::Down)).await, Err(Failure::Down));
    }
}

#[tokio::test(start_paused = true)]
async fn fns_that_call_one_dependency_share_its_breaker() {
    alone(|dependencies| async move {
        fail(5).await;
        assert_eq!(Payments.charge().await, Err(rejected("circuit_open")));
        // Made by its use, and the only one.
        let names: Vec<_> = dependencies
            .all()
            .iter()
            .map(|breaker| breaker.name().to_owned())
            .collect();
        assert_eq!(names, ["payments"]);
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        // This call is the probe.
        assert_eq!(Payments.charge().await, Ok(1));
        assert_eq!(quote(Ok(3)).await, Ok(3));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn registries_do_not_share_and_each_has_its_settings() {
    let (one, two) = (Dependencies::new(), Dependencies::new());
    one.configure("payments", BreakerConfig::default().with_failures_in_a_row(1))
        .expect("it is new");
    one.scope(fail(1)).await;
    two.scope(fail(4)).await;
    assert_eq!(one.breaker("payments").state(), State::Open);
    assert_eq!(two.breaker("payments").state(), State::Closed);
    assert_eq!(one.scope(quote(Ok(1))).await, Err(rejected("circuit_open")));
    assert_eq!(two.scope(quote(Ok(1))).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn outside_of_any_scope_the_process_has_one() {
    #[outbound(breaker = "of-this-test-alone")]
    async fn down() -> Answer {
        Err(Failure::Down)
    }

    for _ in 0..5 {
        let _ = down().await;
    }
    assert_eq!(
        Dependencies::global().breaker("of-this-test-alone").state(),
        State::Open
    );
    // A task that is spawned has left the scope.
    let answer = alone(|_| async { tokio::spawn(down()).await.expect("no panic") }).await;
    assert_eq!(answer, Err(rejected("circuit_open")));
}

#[tokio::test(start_paused = true)]
async fn a_bulkhead_without_a_name_is_one_fn_s() {
    alone(|dependencies| async move {
        let go = Notify::new();
        let (first, ()) = tokio::join!(Payments.one_at_a_time(&go), async {
            assert_eq!(Payments.one_at_a_time(&go).await, Err(rejected("overloaded")));
            // Of the same name in the same module.
            assert_eq!(Search.one_at_a_time().await, Ok(2));
            go.notify_one();
        });
        assert_eq!(first, Ok(1));
        let names: Vec<_> = dependencies
            .bulkheads()
            .iter()
            .map(|limit| limit.name().to_owned())
            .collect();
        assert_eq!(names.len(), 2);
        assert!(
            names
                .iter()
                .all(|name| name.ends_with("::outbound::dependencies::one_at_a_time")),
            "{names:?}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bulkhead_belongs_to_the_dependency_and_its_numbers() {
    alone(|dependencies| async move {
        let go = Notify::new();
        let (first, ()) = tokio::join!(send(&go), async {
            assert_eq!(receive().await, Err(rejected("overloaded")));
            assert_eq!(look().await, Ok(3));
            // What a bulkhead refuses says nothing about the dependency.
            for _ in 0..10 {
                assert_eq!(receive().await, Err(rejected("overloaded")));
            }
            go.notify_one();
        });
        assert_eq!(first, Ok(1));
        assert_eq!(receive().await, Ok(2));
        assert_eq!(dependencies.breaker("mail").state(), State::Closed);
        let limits: Vec<_> = dependencies.bulkheads().iter().map(|limit| limit.limit()).collect();
        assert_eq!(dependencies.bulkheads().len(), 2);
        assert!(limits.contains(&1) && limits.contains(&2));
    })
    .await;
}
