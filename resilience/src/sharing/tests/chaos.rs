//! Fleets under traffic that no test has thought of: by random, from seeds that can be run again.

use fastrand::Rng;
use futures_util::future::join_all;

use super::*;
use crate::breaker::Outcome;

const SIZE: usize = 3;
const STEP: Duration = Duration::from_millis(25);

/// Probes that are out, over all instances.
#[derive(Default)]
struct Out {
    now: AtomicU32,
    most: AtomicU32,
    all: AtomicU32,
}

struct World {
    fleet: Fleet,
    out: Out,
    is_well: std::cell::Cell<bool>,
}

impl World {
    /// Calls that one instance makes in so long, from this seed.
    async fn calls(&self, nth: usize, seed: u64, lasts: Duration) {
        let mut random = Rng::with_seed(seed);
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            // Bursts, and quiet times that are longer than any patience.
            let pause = if random.u8(..20) == 0 {
                random.u32(..600)
            } else {
                random.u32(..8)
            };
            sleep(STEP * pause).await;
            let payments = self.fleet.payments(nth);
            let Ok(permit) = payments.circuit().try_acquire_owned() else {
                continue;
            };
            let is_probe = permit.is_probe();
            if is_probe {
                self.out.all.fetch_add(1, Ordering::SeqCst);
                let now = self.out.now.fetch_add(1, Ordering::SeqCst) + 1;
                self.out.most.fetch_max(now, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(random.u64(1..400))).await;
            if is_probe {
                self.out.now.fetch_sub(1, Ordering::SeqCst);
            }
            permit.record(match random.u8(..10) {
                0 => Outcome::Neutral,
                _ if self.is_well.get() => Outcome::Success,
                _ => Outcome::Failure,
            });
        }
    }

    /// The dependency is well and ill by turns.
    async fn weather(&self, seed: u64, lasts: Duration) {
        let mut random = Rng::with_seed(seed);
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            self.is_well.set(random.bool());
            sleep(Duration::from_millis(random.u64(500..20_000))).await;
        }
        self.is_well.set(true);
    }

    /// The stores are well and ill by turns, each for itself.
    async fn faults(&self, seed: u64, lasts: Duration) {
        let mut random = Rng::with_seed(seed);
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            let store = &self.fleet.stores[random.usize(..SIZE)];
            match random.u8(..8) {
                0 => cut(store, Answer::never()),
                1 => cut(store, Answer::unavailable()),
                2 => _ = store.on_board(Answer::ok(()).after(Duration::from_millis(random.u64(..1_500)))),
                3 => store.hang_up(),
                4 => _ = store.lose_pushes(true),
                5 => self.fleet.store.forget_board(),
                _ => {
                    mend(store);
                    store.lose_pushes(false);
                }
            }
            sleep(Duration::from_millis(random.u64(10..5_000))).await;
        }
        self.fleet.all(mend);
    }
}

async fn world(sharing: Sharing) -> World {
    World {
        fleet: Fleet::of(SIZE, sharing).await,
        out: Out::default(),
        is_well: std::cell::Cell::new(true),
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_answers_there_are_never_two_probes() {
    let lasts = Duration::from_secs(600);
    for seed in 0..12 {
        let world = world(Sharing::system("shop").with_any()).await;
        for store in &world.fleet.stores {
            let takes = Duration::from_millis(Rng::with_seed(seed).u64(..300));
            store.on_board(Answer::ok(()).after(takes));
            store.lose_pushes(seed % 3 == 0);
        }
        let calls = (0..SIZE).map(|nth| world.calls(nth, seed * 10 + nth as u64, lasts));
        tokio::join!(join_all(calls), world.weather(seed, lasts));
        assert!(world.out.all.load(Ordering::SeqCst) > 10, "seed {seed} has seen probes");
        assert_eq!(world.out.most.load(Ordering::SeqCst), 1, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_store_has_done_all_agree_afterwards() {
    let lasts = Duration::from_secs(600);
    for seed in 0..12 {
        let quorum = 1 + u32::from(seed % 2 == 1);
        let world = world(Sharing::system("shop").with_quorum(quorum)).await;
        let calls = (0..SIZE).map(|nth| world.calls(nth, seed * 10 + nth as u64, lasts));
        tokio::join!(join_all(calls), world.weather(seed, lasts), world.faults(seed, lasts));

        // A degraded time, an open time at its end, and the probe.
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            for nth in 0..SIZE {
                _ = call(&world.fleet.payments(nth)).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(world.fleet.states(), [State::Closed; SIZE], "seed {seed}");
        let operators = world.fleet.instances[0].shared_breakers().expect("it is shared");
        let listed = operators.list().await.expect("the store is back");
        assert!(
            listed.iter().all(|status| status.state == State::Closed),
            "seed {seed}: {listed:?}"
        );
    }
}
