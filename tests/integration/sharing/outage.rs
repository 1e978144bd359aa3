//! Redis goes and comes back while breakers stand in every state: no call fails or waits for it, and all agree afterwards.

use resilience::sharing::Order;

use super::*;

/// A breaker for each state, on each instance.
struct Stage {
    closed: Vec<SharedBreaker>,
    alone: Vec<SharedBreaker>,
    open: Vec<SharedBreaker>,
    held_open: Vec<SharedBreaker>,
    held_closed: Vec<SharedBreaker>,
    fleet: Vec<Resilience>,
}

impl Stage {
    async fn set(redis: &RedisServer) -> Self {
        let fleet = fleet(redis, (0..3).map(|_| redis.url())).await;
        let stage = Self {
            closed: named(&fleet, "closed"),
            alone: named(&fleet, "alone"),
            open: named(&fleet, "open"),
            held_open: named(&fleet, "held-open"),
            held_closed: named(&fleet, "held-closed"),
            fleet,
        };
        let orders = stage.fleet[0].shared_breakers().expect("it shares");
        let order = || Order::because("an outage").by("ada");
        orders.hold_open("held-open", order()).await.expect("it is taken");
        orders.hold_closed("held-closed", order()).await.expect("it is taken");
        trip(&stage.alone[0]);
        trip(&stage.open[0]);
        trip(&stage.open[1]);
        eventually("the stage is set", async || {
            all_are(&stage.open, State::Open) && all_are(&stage.held_open, State::Open) && stage.hold_closed()
        })
        .await;
        stage
    }

    /// Whether failures no longer open them.
    fn hold_closed(&self) -> bool {
        self.held_closed.iter().for_each(trip);
        all_are(&self.held_closed, State::Closed)
    }

    /// One call of each: dependencies are broken, but for those of breakers that are closed.
    fn call_all(&self) {
        for breaker in &self.closed {
            assert!(call(breaker, true), "nobody has opened it");
        }
        for breaker in [&self.alone, &self.open].into_iter().flatten() {
            call(breaker, false);
        }
        for breaker in &self.held_open {
            assert!(!call(breaker, true), "it is held open");
        }
        for breaker in &self.held_closed {
            assert!(call(breaker, false), "it is held closed");
        }
    }

    async fn call_on(&self, for_: Duration) {
        let until = tokio::time::Instant::now() + for_;
        while tokio::time::Instant::now() < until {
            self.call_all();
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// With healthy dependencies, all that nobody holds close.
    async fn heals(&self, redis: &RedisServer) {
        let free = [&self.closed, &self.alone, &self.open];
        eventually("all close", async || {
            free.into_iter().flatten().for_each(|breaker| _ = call(breaker, true));
            free.into_iter().all(|breakers| all_are(breakers, State::Closed))
        })
        .await;
        eventually("all closed for good", async || {
            // Somebody's probe may have closed its own a moment before that of all was heard of.
            free.into_iter().flatten().for_each(|breaker| _ = call(breaker, true));
            let listed = self.fleet[0].shared_breakers().expect("it shares").list().await;
            let is_closed = |name: &str| {
                let listed = listed.as_ref().ok()?;
                listed
                    .iter()
                    .find(|status| status.name == name)
                    .map(|status| status.state == State::Closed)
            };
            ["alone", "open"].iter().all(|name| is_closed(name) != Some(false)) && listed.is_ok()
        })
        .await;
        all_here(redis, 3).await;
    }

    /// The orders are gone with the data, and nobody obeys them any longer.
    async fn are_released(&self) {
        eventually("nobody holds them", async || {
            all_are(&self.held_open, State::Closed) && !self.hold_closed()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let mut redis = RedisServer::start();
    let stage = Stage::set(&redis).await;
    redis.kill();
    stage.call_on(Duration::from_secs(4)).await;
    redis.restart();
    stage.heals(&redis).await;
    stage.are_released().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_and_thawed() {
    let redis = RedisServer::start();
    let stage = Stage::set(&redis).await;
    redis.freeze();
    stage.call_on(Duration::from_secs(6)).await;
    redis.thaw();
    stage.heals(&redis).await;
    stage.call_all();
    let orders = stage.fleet[1].shared_breakers().expect("it shares");
    for name in ["held-open", "held-closed"] {
        assert!(orders.release(name).await.expect("it is taken"), "the order has lasted");
    }
    stage.are_released().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed() {
    let redis = RedisServer::start();
    let stage = Stage::set(&redis).await;
    stage.call_on(Duration::from_millis(500)).await;
    redis.cli(&["FLUSHALL"]);
    stage.heals(&redis).await;
    stage.are_released().await;
}
