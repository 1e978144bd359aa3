//! How an open breaker closes again: by a prober, with no traffic, and only while somebody needs it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use poem::{Endpoint, EndpointExt, handler};
use resilience::{
    Resilience,
    breaker::BreakerConfig,
    resilient,
    store::{Store, StoreErrorKind},
    testing::{Answer, ScriptedStore},
};
use tokio::time::{Instant, sleep, timeout};

use super::{ask, is_closed, ms, over, request};

#[resilient(rate_limit(30, 60, on_outage = "fail_closed"))]
#[handler]
async fn limited() {}

/// As the builder has it.
const OPEN_FOR: Duration = ms(5_000);

/// Sends requests until the breaker has opened.
async fn open(app: &impl Endpoint, resilience: &Resilience) {
    while is_closed(resilience) {
        ask(app, request(&[])).await;
    }
}

/// Waits for the breaker to close, and returns when it did.
async fn closing(resilience: &Resilience) -> Instant {
    let mut events = resilience.events();
    let closed = async {
        while !is_closed(resilience) {
            events.recv().await.expect("the runtime lives");
        }
        Instant::now()
    };
    let patience = ms(600_000);
    timeout(patience, closed).await.expect("it closes in the end")
}

#[tokio::test(start_paused = true)]
async fn recovery_needs_no_traffic() {
    let store = ScriptedStore::new().down();
    let resilience = over(&store).build().expect("valid settings");
    let app = limited.with(resilience.clone());
    open(&app, &resilience).await;
    let opened = Instant::now();
    store.on_probe(Answer::ok(()).after(ms(20)));
    store.on_take(Answer::ok(super::room(29, ms(60_000))));

    let took = closing(&resilience).await - opened;
    assert!(took >= OPEN_FOR && took <= OPEN_FOR + ms(500), "{took:?}");
    assert_eq!(ask(&app, request(&[])).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn recovery_follows_the_store_by_the_open_time_and_half_a_second() {
    for back_after in [ms(100), ms(5_001), ms(12_345), ms(60_000)] {
        let store = ScriptedStore::new().down().on_probe(Answer::never());
        let resilience = over(&store).build().expect("valid settings");
        open(&limited.with(resilience.clone()), &resilience).await;
        sleep(back_after).await;
        let back = Instant::now();
        store.on_probe(Answer::ok(()));
        let took = closing(&resilience).await - back;
        assert!(took <= OPEN_FOR + ms(500), "{took:?} after {back_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_the_probe() {
    let store = ScriptedStore::new().down().on_probe(Answer::ok(()).after(ms(400)));
    let resilience = over(&store).build().expect("valid settings");
    let app = limited.with(resilience.clone());
    open(&app, &resilience).await;
    let taken = store.calls().take;
    // Requests come all the time, before, while and after the probe is due.
    while !is_closed(&resilience) {
        assert_eq!(
            ask(&app, request(&[])).await.summary(),
            (503, "limiter_unavailable".into())
        );
        sleep(ms(50)).await;
    }
    assert_eq!(store.calls().take, taken);
    assert_eq!(store.calls().probe, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_a_probe_with_nonsense_is_back() {
    let store = ScriptedStore::new().down();
    let resilience = over(&store).build().expect("valid settings");
    open(&limited.with(resilience.clone()), &resilience).await;
    store.on_probe(Answer::error(StoreErrorKind::Answered));
    sleep(OPEN_FOR + ms(500)).await;
    assert!(is_closed(&resilience));
    assert!(!resilience.health().await.is_degraded());
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_for_the_whole_time_again() {
    let store = ScriptedStore::new().down();
    let settings = over(&store).breaker(BreakerConfig::default().with_open_for(ms(1_000)));
    let resilience = settings.build().expect("valid settings");
    open(&limited.with(resilience.clone()), &resilience).await;
    let probes = store.calls().probe;
    sleep(ms(10_500)).await;
    assert_eq!(store.calls().probe - probes, 10);
}

#[tokio::test(start_paused = true)]
async fn nobody_probes_while_the_breakers_are_closed() {
    let store = ScriptedStore::new();
    let resilience = over(&store).build().expect("valid settings");
    ask(&limited.with(resilience.clone()), request(&[])).await;
    sleep(ms(60_000)).await;
    assert_eq!(store.calls().probe, 0);

    store.down();
    open(&limited.with(resilience.clone()), &resilience).await;
    store.on_probe(Answer::ok(()));
    sleep(ms(60_000)).await;
    let probes = store.calls().probe;
    sleep(ms(60_000)).await;
    assert_eq!(store.calls().probe, probes);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_again_has_a_prober_again() {
    let store = ScriptedStore::new();
    let resilience = over(&store).build().expect("valid settings");
    let app = limited.with(resilience.clone());
    for _ in 0..3 {
        store.down();
        open(&app, &resilience).await;
        store.on_probe(Answer::ok(()));
        closing(&resilience).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_prober_ends_with_the_runtime() {
    for probe in [Answer::unavailable(), Answer::never()] {
        let store = Arc::new(ScriptedStore::new().down().on_probe(probe));
        let gone: Weak<ScriptedStore> = Arc::downgrade(&store);
        let handle = ScriptedStore::clone(&store);
        let shared: Arc<dyn Store> = store;
        let resilience = Resilience::builder()
            .shared_store(shared)
            .build()
            .expect("valid settings");
        let app = limited.with(resilience.clone());
        open(&app, &resilience).await;
        sleep(OPEN_FOR + ms(100)).await;
        let probes = handle.calls().probe;
        assert!(probes > 0);

        drop((app, resilience));
        sleep(ms(60_000)).await;
        assert_eq!(handle.calls().probe, probes);
        assert!(gone.upgrade().is_none(), "somebody still holds the store");
    }
}
