//! One probe over all instances, whoever asks, hangs up or dies.

use tokio::task::JoinHandle;

use super::*;

const TICK: Duration = Duration::from_millis(50);

async fn open(fleet: &Fleet) {
    fail(&fleet.payments(0), 2).await;
    soon().await;
    assert!(fleet.states().iter().all(|state| *state == State::Open));
}

/// Calls every 50 ms until the circuit is closed.
fn caller(breaker: SharedBreaker, dependency: &Arc<Dependency>, takes: Duration) -> JoinHandle<()> {
    let dependency = Arc::clone(dependency);
    tokio::spawn(async move {
        while breaker.circuit().state() != State::Closed {
            _ = breaker.protect(dependency.call(takes, Ok(()))).await;
            sleep(TICK).await;
        }
    })
}

async fn all_recover(callers: Vec<JoinHandle<()>>, within: Duration) {
    for caller in callers {
        timeout(within, caller).await.expect("all recover").expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn several_probes_go_one_after_another_by_one_instance() {
    let mut fleet = Fleet::of(0, Sharing::system("shop").with_any()).await;
    for _ in 0..3 {
        let store = fleet.store.beside();
        let instance = instance_with(&store, &fleet.sharing, config().with_probes(3));
        fleet.stores.push(store);
        fleet.instances.push(instance);
        fleet.payments(fleet.instances.len() - 1);
    }
    sleep(Duration::from_secs(3)).await;
    open(&fleet).await;
    let dependencies: Vec<_> = (0..3).map(|_| Arc::new(Dependency::default())).collect();
    let callers = (0..3).map(|nth| caller(fleet.payments(nth), &dependencies[nth], Duration::from_millis(200)));
    all_recover(callers.collect(), Duration::from_secs(20)).await;
    let mut probes: Vec<_> = dependencies.iter().map(|d| d.calls.load(Ordering::SeqCst)).collect();
    probes.sort_unstable();
    assert_eq!(probes, [0, 0, 3]);
    assert!(dependencies.iter().all(|d| d.most.load(Ordering::SeqCst) <= 1));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_cancelled_makes_room_for_the_next() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    open(&fleet).await;
    let dependency = Arc::new(Dependency::default());
    call(&fleet.payments(1)).await.expect_err("it is open");
    sleep(OPEN_FOR + TICK).await;
    let payments = fleet.payments(1);
    let hung = payments.protect(dependency.call(Duration::from_secs(60), Ok(())));
    timeout(Duration::from_millis(500), hung)
        .await
        .expect_err("it is given up");
    assert_eq!(dependency.calls.load(Ordering::SeqCst), 1, "it was the probe");
    let callers = (0..3).map(|nth| caller(fleet.payments(nth), &dependency, TICK));
    all_recover(callers.collect(), Duration::from_secs(5)).await;
    assert_eq!(dependency.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_dies_in_mid_probe_is_followed_by_another_when_its_lease_ends() {
    let mut fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    open(&fleet).await;
    let dependency = Arc::new(Dependency::default());
    call(&fleet.payments(0)).await.expect_err("it is open");
    sleep(OPEN_FOR + TICK).await;
    let prober = caller(fleet.payments(0), &dependency, Duration::from_secs(60));
    soon().await;
    assert_eq!(dependency.inside.load(Ordering::SeqCst), 1);
    let callers: Vec<_> = (1..3)
        .map(|nth| caller(fleet.payments(nth), &dependency, TICK))
        .collect();
    sleep(Duration::from_millis(500)).await;
    // All at once, as when the process is killed.
    prober.abort();
    drop(fleet.instances.remove(0));
    assert_eq!(dependency.calls.load(Ordering::SeqCst), 1);
    all_recover(callers, Duration::from_secs(10)).await;
    assert_eq!(dependency.calls.load(Ordering::SeqCst), 2);
    assert_eq!(dependency.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_single_caller_once_a_minute_closes_it_at_its_first_or_second_call() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    open(&fleet).await;
    let mut calls = 0;
    while fleet.states() != [State::Closed; 3] {
        sleep(Duration::from_secs(60)).await;
        _ = call(&fleet.payments(1)).await;
        soon().await;
        calls += 1;
        assert!(calls <= 2, "{:?}", fleet.states());
    }
}

#[tokio::test(start_paused = true)]
async fn first_callers_after_a_quiet_time_are_one_probe() {
    let fleet = Fleet::of(3, Sharing::system("shop").with_any()).await;
    open(&fleet).await;
    sleep(Duration::from_secs(60)).await;
    let dependency = Arc::new(Dependency::default());
    let callers = (0..3).map(|nth| caller(fleet.payments(nth), &dependency, Duration::from_millis(300)));
    all_recover(callers.collect(), Duration::from_secs(10)).await;
    assert_eq!(dependency.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_holder_makes_way_for_a_busy_instance() {
    let fleet = Fleet::of(2, Sharing::system("shop").with_any()).await;
    open(&fleet).await;
    call(&fleet.payments(0)).await.expect_err("it is open");
    sleep(OPEN_FOR + TICK).await;
    let dependency = Arc::new(Dependency::default());
    let busy = caller(fleet.payments(1), &dependency, TICK);
    all_recover(vec![busy], Duration::from_secs(3)).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Closed; 2]);
}
