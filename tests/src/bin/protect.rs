//! What a call through a breaker costs: alone, shared, and shared while the store is dead. One run, as ratios.
//!
//! `cargo run --release -p resilience-tests --bin protect`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use resilience::{Dependencies, Resilience, sharing::SharedBreaker};
use resilience_tests::RedisServer;

/// A call takes nanoseconds, and reading the clock tens of them: so many are timed together.
const TOGETHER: u32 = 200;
const SAMPLES: usize = 50_000;

fn breaker(builder: resilience::Builder) -> (Resilience, SharedBreaker) {
    let resilience = builder.dependencies(Dependencies::new()).build().expect("valid");
    let breaker = resilience.breaker("payments");
    (resilience, breaker)
}

async fn sample(breaker: &SharedBreaker) -> f64 {
    let start = Instant::now();
    for _ in 0..TOGETHER {
        let answer = breaker.protect(async { Ok::<_, ()>(black_box(1)) }).await;
        assert!(answer.is_ok());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TOGETHER)
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * share) as usize]
}

#[tokio::main]
async fn main() {
    let well = RedisServer::start();
    let mut dead = RedisServer::start();
    let shared = |redis: &RedisServer| Resilience::builder().redis(redis.url()).share_breakers("bench");
    let breakers = [
        ("alone", breaker(Resilience::builder().memory())),
        ("shared", breaker(shared(&well))),
        ("shared, store dead", breaker(shared(&dead))),
    ];
    tokio::time::sleep(Duration::from_secs(2)).await;
    dead.kill();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let mut samples = breakers.each_ref().map(|_| Vec::with_capacity(SAMPLES));
    // In turn, so that whatever else the machine does meets all of them.
    for _ in 0..SAMPLES {
        for ((_, (_, breaker)), samples) in breakers.iter().zip(&mut samples) {
            samples.push(sample(breaker).await);
        }
        tokio::task::yield_now().await;
    }
    let quantiles = samples
        .each_mut()
        .map(|samples| [0.5, 0.99].map(|share| quantile(samples, share)));
    println!("ns a call           p50     p99   to alone: p50    p99");
    for ((name, _), [p50, p99]) in breakers.iter().zip(quantiles) {
        let [alone50, alone99] = quantiles[0];
        println!(
            "{name:<18} {p50:>5.1}   {p99:>5.1}            {:.3}  {:.3}",
            p50 / alone50,
            p99 / alone99
        );
    }
}
