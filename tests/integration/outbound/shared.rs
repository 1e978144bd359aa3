//! One breaker by one name: for the attribute, for pipelines, for what is called by hand, and for the other instances.

use std::time::Duration;

use resilience::{
    Dependencies, Resilience,
    breaker::{BreakerConfig, CallError, State},
    outbound,
    pipeline::{Pipeline, PipelineError},
    sharing::Sharing,
    testing::ScriptedStore,
};

use super::{Answer, Failure, rejected};

#[outbound(breaker = "payments")]
async fn charge(answer: Answer) -> Answer {
    answer
}

fn instance(store: &ScriptedStore) -> (Resilience, Dependencies) {
    let config = BreakerConfig::default().with_failures_in_a_row(2);
    let dependencies = Dependencies::with_config(config).expect("valid");
    let resilience = Resilience::builder()
        .store(store.clone())
        .dependencies(dependencies.clone())
        .share_breakers(Sharing::system("shop").with_any())
        .build()
        .expect("valid");
    (resilience, dependencies)
}

#[tokio::test(start_paused = true)]
async fn attribute_pipeline_and_handle_go_through_one_circuit_on_all_instances() {
    let store = ScriptedStore::new();
    let (here, dependencies) = instance(&store);
    let (there, others) = instance(&store);
    let payments = here.breaker("payments");
    let pipeline = Pipeline::builder()
        .breaker(there.breaker("payments").circuit().clone())
        .build();
    tokio::time::sleep(Duration::from_secs(2)).await;

    // Opened by the attribute's fn: everything else is refused, on both instances.
    let failing = async {
        for _ in 0..2 {
            assert_eq!(charge(Err(Failure::Down)).await, Err(Failure::Down));
        }
    };
    dependencies.scope(failing).await;
    assert!(payments.is_open().await);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let refused = payments.protect(async { Ok::<_, Failure>(1) }).await;
    assert!(matches!(refused, Err(CallError::Open(_))), "{refused:?}");
    let refused = pipeline.call(|| async { Ok::<_, Failure>(1) }).await;
    assert!(matches!(refused, Err(PipelineError::Open(_))), "{refused:?}");
    let refused = others.scope(charge(Ok(1))).await;
    assert_eq!(refused, Err(rejected("circuit_open")));

    // Closed by the other one's pipeline.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut calls = 0;
    while pipeline.call(|| async { Ok::<_, Failure>(1) }).await.is_err() {
        calls += 1;
        assert!(calls < 100, "it gets leave to probe");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(payments.circuit().state(), State::Closed);
    assert_eq!(dependencies.scope(charge(Ok(7))).await, Ok(7));
}
