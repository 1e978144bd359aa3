//! One probe at a time, over all instances.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_instances_send_one_probe_at_a_time() {
    let redis = RedisServer::start();
    let fleet = fleet(&redis, (0..5).map(|_| redis.url())).await;
    let payments = named(&fleet, "payments");
    let dependency = Arc::new(Dependency::default());
    let _callers = Callers::start(&payments, &dependency);
    for _ in 0..3 {
        eventually("all are open", async || all_are(&payments, State::Open)).await;
        dependency.watch().await;
        let calls = dependency.count().calls;
        eventually("probes fail", async || dependency.count().calls >= calls + 3).await;
        dependency.is_well.store(true, Ordering::SeqCst);
        eventually("all are closed", async || all_are(&payments, State::Closed)).await;
        assert_eq!(dependency.count().most, 1, "probes at a time");
        dependency.is_well.store(false, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prober_that_dies_in_mid_probe_is_followed_by_another_one() {
    let redis = RedisServer::start();
    let dependency = Arc::new(Dependency::default());
    // Each in a runtime of its own, as in a process.
    let mut runtimes = Vec::new();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtimes.push(start_in(runtime, redis.url(), &dependency));
    }
    all_listen(&redis, 3).await;
    let breakers = |runtimes: &[(SharedBreaker, tokio::runtime::Runtime)]| -> Vec<_> {
        runtimes.iter().map(|(breaker, _)| breaker.clone()).collect()
    };
    eventually("all are open", async || all_are(&breakers(&runtimes), State::Open)).await;
    dependency.watch().await;
    dependency.hangs.store(true, Ordering::SeqCst);
    let probing = |runtimes: &[(SharedBreaker, tokio::runtime::Runtime)]| {
        breakers(runtimes)
            .iter()
            .position(|breaker| breaker.circuit().state() == State::HalfOpen)
    };
    eventually("one probes", async || {
        dependency.count().inside == 1 && probing(&runtimes).is_some()
    })
    .await;
    let prober = probing(&runtimes).expect("it has just been seen");
    let (_, killed) = runtimes.swap_remove(prober);
    killed.shutdown_background();
    eventually("it has left", async || dependency.count().inside == 0).await;
    dependency.hangs.store(false, Ordering::SeqCst);
    dependency.is_well.store(true, Ordering::SeqCst);
    eventually("the others close", async || {
        all_are(&breakers(&runtimes), State::Closed)
    })
    .await;
    assert_eq!(dependency.count().most, 1, "probes at a time");
    runtimes
        .into_iter()
        .for_each(|(_, runtime)| runtime.shutdown_background());
}

fn start_in(
    runtime: tokio::runtime::Runtime,
    url: String,
    dependency: &Arc<Dependency>,
) -> (SharedBreaker, tokio::runtime::Runtime) {
    let entered = runtime.enter();
    let instance = instance(url);
    let breaker = instance.breaker("payments");
    let (calling, dependency) = (breaker.clone(), Arc::clone(dependency));
    drop(tokio::spawn(async move {
        // It ends with its runtime, and so does the instance.
        let _instance = instance;
        loop {
            _ = calling.protect(dependency.call()).await;
            sleep(Duration::from_millis(2)).await;
        }
    }));
    drop(entered);
    (breaker, runtime)
}

async fn all_listen(redis: &RedisServer, size: usize) {
    let changes = format!("{KEYS}changes");
    eventually("all listen", async || {
        redis.cli(&["PUBSUB", "NUMSUB", &changes]) == format!("{changes}\n{size}")
    })
    .await;
}
