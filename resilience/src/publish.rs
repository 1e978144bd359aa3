//! Publishes what the guards have counted through the `metrics` facade, off the request path.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `resilience_guard_answers_total` | counter | `handler`, `guard`, `answer` |
//! | `resilience_concurrency_in_flight`, `_queued`, `_limit` | gauges | `handler` |
//! | `resilience_concurrency_shed_total` | counter | `handler`, `reason` |
//! | `resilience_deadline_overruns_total` | counter: the handler ran on for over 100 ms after its deadline | `handler` |
//! | `resilience_breaker_state` | gauge: 0 closed, 1 half-open, 2 open | `breaker` |
//! | `resilience_breaker_transitions_total` | counter | `breaker`, `from`, `to` |
//! | `resilience_dependency_state` | gauge: as above, of the dependencies' breakers | `dependency` |
//! | `resilience_sharing_degraded` | gauge: 1 while the store does not answer about shared breakers | `system` |
//! | `resilience_store_seconds` | histogram | `operation` |
//! | `resilience_store_outages_total` | counter | `operation`, `kind` |

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{MissedTickBehavior, interval},
};

use crate::{
    bound::Bound,
    breaker::{BreakerEvent, State},
    concurrency::{ConcurrencyLimit, Shed},
    dependency::Dependencies,
    observe::{Answer, Tally},
    runtime::Runtime,
    store_breaker::Operation,
};

const EVERY: Duration = Duration::from_secs(1);

/// Starts the task that publishes. It ends with the runtime.
pub(crate) fn spawn(runtime: &Arc<Runtime>) {
    let events = runtime.breakers.events();
    tokio::spawn(publish_until_gone(Arc::downgrade(runtime), events));
}

async fn publish_until_gone(runtime: Weak<Runtime>, mut events: Receiver<BreakerEvent>) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => match runtime.upgrade() {
                Some(runtime) => publish(&runtime),
                None => return,
            },
            event = events.recv() => match event {
                Ok(event) => count_transition(&event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
        }
    }
}

fn count_transition(event: &BreakerEvent) {
    metrics::counter!(
        "resilience_breaker_transitions_total",
        "breaker" => event.breaker.to_string(),
        "from" => event.from.as_str(),
        "to" => event.to.as_str(),
    )
    .increment(1);
}

/// Publishes all counts, states and samples as they are now.
pub(crate) fn publish(runtime: &Runtime) {
    runtime.each_bound(publish_answers);
    for breaker in runtime.breakers.all() {
        let state = metrics::gauge!("resilience_breaker_state", "breaker" => breaker.name().to_owned());
        state.set(number(breaker.state()));
    }
    let dependencies = runtime.dependencies.as_ref().unwrap_or_else(|| Dependencies::global());
    for breaker in dependencies.all() {
        let state = metrics::gauge!("resilience_dependency_state", "dependency" => breaker.name().to_owned());
        state.set(number(breaker.state()));
    }
    if let Some((core, _)) = &runtime.sharing {
        let degraded = metrics::gauge!("resilience_sharing_degraded", "system" => core.system().to_owned());
        degraded.set(f64::from(u8::from(core.is_degraded())));
    }
    for operation in Operation::ALL {
        for (kind, count) in runtime.observer.outages(operation).filter(|(_, count)| *count > 0) {
            metrics::counter!("resilience_store_outages_total", "operation" => operation.name(), "kind" => kind)
                .absolute(count);
        }
        let histogram = metrics::histogram!("resilience_store_seconds", "operation" => operation.name());
        for took in runtime.observer.drain_samples(operation) {
            histogram.record(took);
        }
    }
}

const fn number(state: State) -> f64 {
    match state {
        State::Closed => 0.0,
        State::HalfOpen => 1.0,
        State::Open => 2.0,
    }
}

fn publish_answers(bound: &Bound) {
    let handler = format!("{}::{}", bound.module, bound.name);
    let publish = |guard: String, tally: &Tally| {
        for answer in Answer::ALL {
            let count = tally.counted(answer);
            if count > 0 {
                metrics::counter!(
                    "resilience_guard_answers_total",
                    "handler" => handler.clone(), "guard" => guard.clone(), "answer" => answer.as_str(),
                )
                .absolute(count);
            }
        }
    };
    let overruns = bound.overruns.counted();
    if overruns > 0 {
        metrics::counter!("resilience_deadline_overruns_total", "handler" => handler.clone()).absolute(overruns);
    }
    if let Some(slots) = &bound.slots {
        publish("concurrency".into(), &slots.tally);
        publish_slots(&handler, &slots.limit);
    }
    for quotas in [&bound.quotas, &bound.user_quotas] {
        for quota in quotas.all.iter().chain(&quotas.observed) {
            publish(format!("rate_limit:{}", quota.label), &quota.tally);
        }
    }
    for flag in &bound.flags {
        publish(format!("flag:{}", flag.spec.name), &flag.tally);
    }
    if let Some(auth) = &bound.auth {
        publish("auth".into(), &auth.tally);
    }
    for guard in &bound.guards {
        publish(format!("guard:{}", guard.guard.name()), &guard.tally);
    }
    for lockout in bound.lockouts.iter().flat_map(|lockouts| &lockouts.all) {
        publish(format!("lockout:{}", lockout.lockout.id), &lockout.tally);
    }
}

fn publish_slots(handler: &str, limit: &ConcurrencyLimit) {
    let gauge = |name, value: f64| metrics::gauge!(name, "handler" => handler.to_owned()).set(value);
    gauge("resilience_concurrency_limit", limit.limit().into());
    gauge("resilience_concurrency_in_flight", limit.in_flight().into());
    gauge("resilience_concurrency_queued", limit.queued() as f64);
    let shed = limit.shed();
    for (reason, count) in [
        (Shed::QueueFull, shed.queue_full),
        (Shed::QueueTimeout, shed.queue_timeout),
        (Shed::Displaced, shed.displaced),
    ] {
        if count > 0 {
            let (handler, reason) = (handler.to_owned(), reason.as_str());
            metrics::counter!("resilience_concurrency_shed_total", "handler" => handler, "reason" => reason)
                .absolute(count);
        }
    }
}
