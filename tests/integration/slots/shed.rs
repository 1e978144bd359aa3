//! Who is let in, who waits, and who is shed.

use std::{sync::Arc, time::Duration};

use poem::{Endpoint, Response};
use resilience::concurrency::Priority;
use tokio::{task::JoinHandle, time::Instant};

use super::{Gate, app, request, settings, settle, two_at_once};

type Asked = JoinHandle<(u16, Duration)>;

/// Sends a request as a task of its own: the status, and how long it took.
fn ask<E: Endpoint<Output = Response> + 'static>(app: &Arc<E>, who: &str) -> Asked {
    let (app, request) = (Arc::clone(app), request(who));
    tokio::spawn(async move {
        let asked = Instant::now();
        let response = app.get_response(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().into_string().await.expect("a text");
        if status == 503 {
            assert!(body.contains("\"overloaded\""), "{body}");
        }
        (status, asked.elapsed())
    })
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn what_finds_no_slot_waits_and_what_finds_no_place_is_shed_at_once() {
    let (gate, mut begun) = Gate::new();
    let (app, limit) = app(settings(), two_at_once, gate.clone());
    let app = Arc::new(app);
    let served = [ask(&app, "a"), ask(&app, "b")];
    settle().await;
    let waiting = [ask(&app, "c"), ask(&app, "d")];
    settle().await;
    assert_eq!((limit.in_flight(), limit.queued()), (2, 2));
    let response = app.get_response(request("e")).await;
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["retry-after"], "1");

    for _ in 0..4 {
        gate.open();
    }
    for asked in served.into_iter().chain(waiting) {
        assert_eq!(asked.await.expect("no panic"), (200, Duration::ZERO));
    }
    let mut order = Vec::new();
    while let Ok(who) = begun.try_recv() {
        order.push(who);
    }
    assert_eq!(order, ["a", "b", "c", "d"], "first come, first served");
    assert_eq!((limit.in_flight(), limit.queued()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time_and_its_caller() {
    let (gate, mut begun) = Gate::new();
    let (app, limit) = app(settings(), two_at_once, gate.clone());
    let app = Arc::new(app);
    let served = [ask(&app, "a"), ask(&app, "b")];
    settle().await;
    let (gone, late) = (ask(&app, "gone"), ask(&app, "late"));
    settle().await;
    gone.abort();
    assert_eq!(late.await.expect("no panic"), (503, 100 * MS));
    assert_eq!((limit.in_flight(), limit.queued()), (2, 0));

    let next = ask(&app, "next");
    settle().await;
    for _ in 0..3 {
        gate.open();
    }
    assert_eq!(next.await.expect("no panic").0, 200);
    for asked in served {
        assert_eq!(asked.await.expect("no panic").0, 200);
    }
    let order: Vec<_> = std::iter::from_fn(|| begun.try_recv().ok()).collect();
    assert_eq!(order, ["a", "b", "next"], "nobody is served who has gone");
}

#[tokio::test(start_paused = true)]
async fn the_higher_priority_is_served_first_and_takes_the_place_of_a_lower_one() {
    let (gate, mut begun) = Gate::new();
    let of = |request: &poem::Request, own| match request.header("x-who") {
        Some(who) if who.starts_with("critical") => Priority::Critical,
        Some(who) if who.starts_with("background") => Priority::Background,
        _ => own,
    };
    let (app, limit) = app(settings().priority(of), two_at_once, gate.clone());
    let app = Arc::new(app);
    let served = [ask(&app, "a"), ask(&app, "b")];
    settle().await;
    let background = ask(&app, "background");
    settle().await;
    let default = ask(&app, "default");
    settle().await;
    // The queue is full: the lowest makes room, at once.
    let critical = ask(&app, "critical");
    assert_eq!(background.await.expect("no panic"), (503, Duration::ZERO));
    settle().await;
    assert_eq!((limit.in_flight(), limit.queued()), (2, 2));
    // And who is no higher than any that wait finds no place.
    assert_eq!(ask(&app, "background").await.expect("no panic"), (503, Duration::ZERO));
    assert_eq!(ask(&app, "default 2").await.expect("no panic"), (503, Duration::ZERO));
    for _ in 0..4 {
        gate.open();
    }
    for asked in served.into_iter().chain([default, critical]) {
        assert_eq!(asked.await.expect("no panic").0, 200);
    }
    let order: Vec<_> = std::iter::from_fn(|| begun.try_recv().ok()).collect();
    assert_eq!(order, ["a", "b", "critical", "default"]);
}
