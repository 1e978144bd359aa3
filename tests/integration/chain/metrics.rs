//! What is counted, as a recorder of the `metrics` facade sees it.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use poem::{EndpointExt, handler};
use resilience::{
    Identity, resilient,
    testing::{Answer, ScriptedStore},
};

use super::{ask, full, ms, over, request, room};

#[resilient(
    auth = "fail_closed",
    flag("metrics", default = false, stale = "30s"),
    rate_limit(30, 60, name = "metrics", on_outage = "fail_local"),
    breaker = "metrics"
)]
#[handler]
async fn measured(_user: Identity) {}

/// Metrics of this handler's breaker and guards, as `name{label=value,…}`.
fn recorded(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let lines = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let key = key.key();
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        (format!("{}{{{}}}", key.name(), labels.join(",")), value)
    });
    lines.collect()
}

fn answers(guard: &str, answer: &str) -> String {
    let handler = concat!(module_path!(), "::measured");
    format!("resilience_guard_answers_total{{handler={handler},guard={guard},answer={answer}}}")
}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];
const QUOTA: &str = "rate_limit:=metrics:60000ms:sliding:ip";

#[tokio::test(start_paused = true)]
async fn outcomes_breakers_and_latency_are_published() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = ScriptedStore::new();
    let resilience = over(&store).build().expect("valid settings");
    let app = measured.with(resilience.clone());

    store.on_identity(Answer::ok(Some("ada")).after(ms(20)));
    ask(&app, request(KEY)).await;
    ask(&app, request(&[])).await;
    store.on_flag(Answer::ok(Some(true)));
    ask(&app, request(KEY)).await;
    store.on_take(Answer::ok(full(ms(1))));
    ask(&app, request(KEY)).await;
    resilience.publish_metrics();

    let recorded_now = recorded(&snapshotter);
    for (guard, answer, count) in [
        (QUOTA, "passed", 3),
        (QUOTA, "rejected", 1),
        ("flag:metrics", "passed", 2),
        ("flag:metrics", "rejected", 1),
        ("auth", "passed", 1),
        ("auth", "rejected", 1),
    ] {
        let key = answers(guard, answer);
        assert_eq!(
            recorded_now.get(&key),
            Some(&DebugValue::Counter(count)),
            "{key} in {recorded_now:#?}"
        );
    }
    assert_eq!(
        recorded_now["resilience_breaker_state{breaker=metrics}"],
        DebugValue::Gauge(0.0.into())
    );
    assert_eq!(
        recorded_now["resilience_store_seconds{operation=auth}"],
        DebugValue::Histogram(vec![0.02.into()]),
        "one look-up was read; the others were cut short or not needed"
    );
}

#[tokio::test(start_paused = true)]
async fn fallbacks_and_transitions_are_published() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = ScriptedStore::new().on_take(Answer::ok(room(1, ms(1))));
    let resilience = over(&store).build().expect("valid settings");
    let app = measured.with(resilience.clone());
    ask(&app, request(&[])).await;
    store.down();
    for _ in 0..4 {
        ask(&app, request(KEY)).await;
    }
    // The events of the breaker are counted by a task that wakes by the second.
    tokio::time::sleep(ms(1)).await;
    resilience.publish_metrics();

    let recorded = recorded(&snapshotter);
    for (guard, answer, count) in [
        (QUOTA, "fallback_local", 4),
        ("flag:metrics", "fallback_stale", 4),
        ("auth", "rejected", 1),
        ("auth", "unavailable", 4),
    ] {
        let key = answers(guard, answer);
        assert_eq!(
            recorded.get(&key),
            Some(&DebugValue::Counter(count)),
            "{key} in {recorded:#?}"
        );
    }
    assert_eq!(
        recorded["resilience_breaker_state{breaker=metrics}"],
        DebugValue::Gauge(2.0.into())
    );
    assert_eq!(
        recorded["resilience_breaker_transitions_total{breaker=metrics,from=closed,to=open}"],
        DebugValue::Counter(1)
    );
}

#[resilient(
    flag("metrics-observed", default = false, mode = "observe"),
    rate_limit(30, 60, name = "metrics-observed", mode = "observe")
)]
#[handler]
async fn observed() {}

#[tokio::test(start_paused = true)]
async fn what_would_have_been_rejected_is_published() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = ScriptedStore::new();
    let resilience = over(&store).build().expect("valid settings");
    let app = observed.with(resilience.clone());
    ask(&app, request(&[])).await;
    store.on_take(Answer::ok(full(ms(1)))).on_flag(Answer::ok(Some(true)));
    ask(&app, request(&[])).await;
    resilience.publish_metrics();

    let recorded = recorded(&snapshotter);
    for guard in [
        "rate_limit:=metrics-observed:60000ms:sliding:ip",
        "flag:metrics-observed",
    ] {
        for answer in ["passed", "observed_rejected"] {
            let key = answers(guard, answer).replace("::measured", "::observed");
            assert_eq!(
                recorded.get(&key),
                Some(&DebugValue::Counter(1)),
                "{key} in {recorded:#?}"
            );
        }
    }
}

#[resilient(deadline = "1ms")]
#[handler]
async fn blocks_its_thread() {
    std::thread::sleep(ms(150));
}

#[tokio::test]
async fn a_handler_that_nobody_can_drop_in_time_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let resilience = over(&ScriptedStore::new()).build().expect("valid settings");
    let app = blocks_its_thread.with(resilience.clone());
    ask(&app, request(&[])).await;
    resilience.publish_metrics();
    let handler = concat!(module_path!(), "::blocks_its_thread");
    let overruns = format!("resilience_deadline_overruns_total{{handler={handler}}}");
    assert_eq!(recorded(&snapshotter).get(&overruns), Some(&DebugValue::Counter(1)));
}
