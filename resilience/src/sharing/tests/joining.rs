//! Instances that come and go, and breakers that do.

use super::{super::SharedBreaker, *};
use crate::BuildError;

fn over(store: &ScriptedStore, dependencies: &Dependencies) -> Result<Resilience, BuildError> {
    Resilience::builder()
        .store(store.clone())
        .dependencies(dependencies.clone())
        .share_breakers(Sharing::system("shop").with_any())
        .build()
}

fn registry() -> Dependencies {
    Dependencies::with_config(config()).expect("valid")
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_adopts_what_is_known_and_writes_nothing() {
    let mut fleet = Fleet::of(1, Sharing::system("shop").with_any()).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    let payments = fleet.grow();
    soon().await;
    let calls = fleet.stores[1].board_calls();
    assert_eq!((calls.look, calls.presence, calls.written()), (1, 0, 0), "{calls:?}");
    let refused = call(&payments).await;
    assert!(
        matches!(refused, Err(CallError::Open(_))),
        "at its first call: {refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_state_check_of_a_new_instance_waits_for_what_the_others_know() {
    let mut fleet = Fleet::of(1, Sharing::system("shop").with_any()).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    let late = Answer::ok(()).after(Duration::from_millis(100));
    let payments = fleet.grow_over(fleet.store.beside().on_board(late));
    assert!(payments.is_open().await);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_made_later_is_open_from_its_first_call_on() {
    let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
    fail(&fleet.instances[0].breaker("search"), 2).await;
    soon().await;
    let search: SharedBreaker = fleet.instances[1].breaker("search");
    assert!(matches!(call(&search).await, Err(CallError::Open(_))));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_was_open_before_it_was_shared_is_so_for_all() {
    let dependencies = registry();
    let circuit = dependencies.breaker("payments");
    circuit.record_failure();
    assert!(circuit.record_failure(), "it opens");
    let fleet = Fleet::of(1, Sharing::system("shop").with_any()).await;
    let instance = over(&fleet.store.beside(), &dependencies).expect("valid");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(instance.breaker("payments").circuit().state(), State::Open);
    assert_eq!(fleet.states(), [State::Open]);
}

#[tokio::test(start_paused = true)]
async fn when_a_runtime_is_gone_its_breakers_go_on_alone_and_orders_end() {
    let dependencies = registry();
    let store = ScriptedStore::new();
    let instance = over(&store, &dependencies).expect("valid");
    let (payments, search) = (instance.breaker("payments"), instance.breaker("search"));
    sleep(Duration::from_secs(2)).await;
    let operators = instance.shared_breakers().expect("it is shared");
    let order = Order::because("maintenance");
    operators.hold_open("payments", order).await.expect("the store is here");
    fail(&search, 2).await;
    soon().await;
    assert_eq!(payments.circuit().state(), State::Open);
    drop(instance);
    soon().await;
    call(&payments).await.expect("nobody holds it any more");
    sleep(OPEN_FOR).await;
    call(&search).await.expect("a probe without anybody's leave");
    fail(&search, 2).await;
    assert!(
        matches!(call(&search).await, Err(CallError::Open(_))),
        "it still is a breaker"
    );
    let before = store.board_calls();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.board_calls(), before, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_do_not_share_the_breakers_of_one_registry_at_a_time() {
    let (dependencies, store) = (registry(), ScriptedStore::new());
    let first = over(&store, &dependencies).expect("valid");
    let refused = over(&store, &dependencies).map(drop);
    assert!(
        matches!(&refused, Err(error) if error.to_string().contains("share_breakers")),
        "{refused:?}"
    );
    drop(first);
    soon().await;
    let second = over(&store, &dependencies).expect("the first is gone");
    sleep(Duration::from_secs(2)).await;
    fail(&second.breaker("payments"), 2).await;
    soon().await;
    let listed = second.shared_breakers().expect("it is shared").list().await;
    assert_eq!(listed.expect("the store is here")[0].state, State::Open);
}
