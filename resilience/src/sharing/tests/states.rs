//! Every state that an instance can be in, and every fault of the store: no call waits or fails, and all agree afterwards.

use tokio::task::JoinHandle;

use super::*;

/// What the instances of a fleet of three are about when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Closed,
    /// The first one's own business.
    OpenAlone,
    OpenForAll,
    /// The open time is over, and the first one has the lease but no caller.
    HoldingTheLease,
    /// The first one probes.
    Probing,
    /// The first one probes, and the others have asked for leave.
    WaitingForLeave,
    HeldOpen,
    HeldClosed,
}

const STAGES: [Stage; 8] = [
    Stage::Closed,
    Stage::OpenAlone,
    Stage::OpenForAll,
    Stage::HoldingTheLease,
    Stage::Probing,
    Stage::WaitingForLeave,
    Stage::HeldOpen,
    Stage::HeldClosed,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Hangs,
    Fails,
    Denies,
    /// The board acts, and its answer comes too late.
    AnswersTooLate,
    Forgets,
    ComesBackEmpty,
    /// Of one side of a partition, the first instance is alone.
    IsFarFromTheFirst,
    IsFarFromTheOthers,
}

impl Fault {
    fn strike(self, fleet: &Fleet) {
        match self {
            Self::Hangs => fleet.all(|store| cut(store, Answer::never())),
            Self::Fails | Self::ComesBackEmpty => fleet.all(|store| cut(store, Answer::unavailable())),
            Self::Denies => fleet.all(|store| cut(store, Answer::denied())),
            Self::AnswersTooLate => {
                let late = Answer::ok(()).after(Duration::from_millis(1_500));
                fleet.all(|store| _ = store.on_board(late.clone()));
            }
            Self::IsFarFromTheFirst => cut(&fleet.stores[0], Answer::never()),
            Self::IsFarFromTheOthers => fleet.stores[1..].iter().for_each(|store| cut(store, Answer::never())),
            Self::Forgets => fleet.store.forget_board(),
        }
    }

    fn end(self, fleet: &Fleet) {
        if self == Self::ComesBackEmpty {
            fleet.store.forget_board();
        }
        fleet.all(mend);
    }

    fn loses_orders(self) -> bool {
        matches!(self, Self::Forgets | Self::ComesBackEmpty)
    }
}

type Probe = JoinHandle<Result<(), CallError<&'static str>>>;

impl Stage {
    async fn reach(self, fleet: &Fleet) -> Option<Probe> {
        let operators = fleet.instances[0].shared_breakers().expect("it is shared");
        match self {
            Self::Closed => {}
            Self::OpenAlone => fail(&fleet.payments(0), 2).await,
            Self::OpenForAll => open(fleet).await,
            Self::HoldingTheLease => lease(fleet).await,
            Self::Probing => return Some(probe(fleet).await),
            Self::WaitingForLeave => {
                let probe = probe(fleet).await;
                for nth in 1..3 {
                    call(&fleet.payments(nth)).await.expect_err("somebody else probes");
                }
                soon().await;
                return Some(probe);
            }
            Self::HeldOpen => {
                let order = Order::because("maintenance");
                operators.hold_open("payments", order).await.expect("the store is here");
            }
            Self::HeldClosed => {
                let order = Order::because("a false alarm");
                operators
                    .hold_closed("payments", order)
                    .await
                    .expect("the store is here");
            }
        }
        soon().await;
        None
    }

    fn lets_all_calls_pass(self, fault: Fault) -> bool {
        self == Self::Closed || self == Self::HeldClosed && !fault.loses_orders()
    }
}

async fn open(fleet: &Fleet) {
    fail(&fleet.payments(0), 2).await;
    fail(&fleet.payments(1), 2).await;
    soon().await;
    assert_eq!(fleet.states(), [State::Open; 3]);
}

async fn lease(fleet: &Fleet) {
    open(fleet).await;
    call(&fleet.payments(0)).await.expect_err("it is open");
    sleep(OPEN_FOR + Duration::from_millis(10)).await;
}

async fn probe(fleet: &Fleet) -> Probe {
    lease(fleet).await;
    let payments = fleet.payments(0);
    let probe = tokio::spawn(async move {
        let slow = async {
            sleep(Duration::from_secs(1)).await;
            Ok(())
        };
        payments.protect(slow).await
    });
    soon().await;
    assert_eq!(fleet.states()[0], State::HalfOpen);
    probe
}

/// Everybody calls, for so long: at no cost of time, whatever comes of it.
async fn traffic(fleet: &Fleet, lasts: Duration, must_pass: bool) {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        for nth in 0..3 {
            let payments = fleet.payments(nth);
            let result = call(&payments).await;
            assert!(result.is_ok() || !must_pass, "{result:?}");
            at_once(payments.is_open()).await;
            at_once(payments.status()).await.expect("what was known");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn survives(stage: Stage, fault: Fault) {
    let fleet = Fleet::of(3, Sharing::system("shop")).await;
    let probe = stage.reach(&fleet).await;
    fault.strike(&fleet);
    traffic(&fleet, Duration::from_secs(20), stage.lets_all_calls_pass(fault)).await;
    if let Some(probe) = probe {
        let probe = probe.await.expect("no panic");
        probe.expect("whoever is in stays in");
    }
    fault.end(&fleet);
    traffic(&fleet, Duration::from_secs(70), stage.lets_all_calls_pass(fault)).await;

    let is_held = stage == Stage::HeldOpen && !fault.loses_orders();
    let expected = if is_held { State::Open } else { State::Closed };
    assert_eq!(fleet.states(), [expected; 3]);
    let operators = fleet.instances[0].shared_breakers().expect("it is shared");
    let listed = operators.list().await.expect("the store is back");
    assert_eq!(listed[0].state, expected, "{listed:?}");
    operators.release("payments").await.expect("the store is back");
    soon().await;
    assert_eq!(fleet.states(), [State::Closed; 3]);
    // All work as before.
    open(&fleet).await;
}

async fn survives_in_all_stages(fault: Fault) {
    for stage in STAGES {
        // Names the row, should it not.
        println!("{stage:?}, {fault:?}");
        survives(stage, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs() {
    survives_in_all_stages(Fault::Hangs).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails() {
    survives_in_all_stages(Fault::Fails).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_the_credentials() {
    survives_in_all_stages(Fault::Denies).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_everything() {
    survives_in_all_stages(Fault::Forgets).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_empty() {
    survives_in_all_stages(Fault::ComesBackEmpty).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_acts_and_answers_too_late() {
    survives_in_all_stages(Fault::AnswersTooLate).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_the_first_is_cut_off_from() {
    survives_in_all_stages(Fault::IsFarFromTheFirst).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_the_first_can_reach() {
    survives_in_all_stages(Fault::IsFarFromTheOthers).await;
}
