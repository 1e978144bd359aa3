//! Opening, probing and closing together, and operators' orders.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_bad_node_opens_for_itself_and_a_quorum_for_all() {
    let fleet = Fleet::of(3, Sharing::system("shop")).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open, State::Closed, State::Closed]);
    fail(&fleet.payments(1), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 3]);
    let status = fleet.payments(2).status().await.expect("it is known");
    assert_eq!(status.reason.as_deref(), Some("2 failures in a row"));
}

#[tokio::test(start_paused = true)]
async fn a_single_instance_is_its_own_quorum() {
    let mut fleet = Fleet::of(1, Sharing::system("shop")).await;
    fail(&fleet.payments(0), 2).await;
    soon().await;
    fleet.grow();
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 2]);
}

#[tokio::test(start_paused = true)]
async fn one_probe_over_all_instances_closes_for_all() {
    let fleet = Fleet::of(5, Sharing::system("shop").with_any()).await;
    fail(&fleet.payments(3), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 5]);

    let dependency = Arc::new(Dependency::default());
    let mut callers = Vec::new();
    for nth in 0..5 {
        let (breaker, dependency) = (fleet.payments(nth), Arc::clone(&dependency));
        callers.push(tokio::spawn(async move {
            loop {
                let call = dependency.call(Duration::from_millis(300), Ok(()));
                if breaker.protect(call).await.is_ok() {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        }));
    }
    sleep(OPEN_FOR + Duration::from_millis(250)).await;
    assert_eq!(dependency.calls.load(Ordering::SeqCst), 1, "the probe");
    for caller in callers {
        timeout(Duration::from_secs(5), caller)
            .await
            .expect("all recover")
            .expect("no panic");
    }
    soon().await;
    assert_eq!(fleet.states(), [State::Closed; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_keeps_all_out_for_another_while() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    fail(&fleet.payments(0), 2).await;
    for round in 0..3 {
        soon().await;
        assert_eq!(fleet.states(), [State::Open; 3], "round {round}");
        sleep(OPEN_FOR + Duration::from_millis(20)).await;
        // The first is refused where nobody has asked for leave yet.
        let mut asked = 0;
        for nth in 0..3 {
            let probe = fleet.payments(nth).protect(async { Err::<(), _>("still down") }).await;
            asked += u32::from(matches!(probe, Err(CallError::Inner(_))));
        }
        assert!(asked <= 1);
        soon().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_holds_on_all_instances_and_on_those_to_come() {
    let mut fleet = Fleet::of(2, Sharing::system("shop")).await;
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let order = || Order::because("maintenance").by("ada");
    operators
        .hold_open("payments", order())
        .await
        .expect("the store is here");
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 2]);
    fleet.grow();
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 3]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fleet.states(), [State::Open; 3], "no probe ends an order");

    operators
        .hold_closed("payments", order().lasting(Duration::from_secs(60)))
        .await
        .expect("the store is here");
    soon().await;
    fail(&fleet.payments(1), 20).await;
    assert_eq!(fleet.states(), [State::Closed; 3]);
    sleep(Duration::from_secs(61)).await;
    fail(&fleet.payments(1), 2).await;
    assert_eq!(
        fleet.states(),
        [State::Closed, State::Open, State::Closed],
        "the order is over"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dealt_out_in_turn_meet_a_lease_in_the_end() {
    for every in [1_600, 2_000, 5_000] {
        let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
        fail(&fleet.payments(0), 2).await;
        sleep(OPEN_FOR).await;
        let mut calls = 0;
        while fleet
            .payments(calls % 2)
            .protect(async { Ok::<_, ()>(()) })
            .await
            .is_err()
        {
            calls += 1;
            assert!(calls < 40, "each meets the instance that has just made way");
            sleep(Duration::from_millis(every)).await;
        }
        soon().await;
        assert_eq!(fleet.states(), [State::Closed; 2]);
    }
}
