//! Guards that only observe: they are asked and count, and the request passes whatever they say.

use poem::{EndpointExt, handler};
use resilience::{
    Identity, Resilience, resilient,
    store::MemoryStore,
    testing::{Answer, ScriptedStore},
};

use super::{app, ask, full, ms, outage_log::Log, over, request, room, timed};

#[resilient(rate_limit(1, "1h", key = global, mode = "observe"))]
#[handler]
async fn observed() {}

#[resilient(rate_limit(2, "1h", key = global), rate_limit(1, "1d", key = global, mode = "observe"))]
#[handler]
async fn one_of_each() {}

#[resilient(rate_limit(1, "1h", key = global, mode = "observe", on_outage = "fail_closed", deadline = "30ms"))]
#[handler]
async fn would_be_closed() {}

#[resilient(rate_limit(1, "1h", key = global, mode = "observe", on_outage = "fail_local"))]
#[handler]
async fn would_count_here() {}

#[resilient(auth = "fail_closed", rate_limit(1, "1h", key = user, mode = "observe"))]
#[handler]
async fn by_user(Identity(user): Identity) -> String {
    user
}

#[resilient(flag("observe-kill", default = true, mode = "observe"))]
#[handler]
async fn flagged() {}

fn embedded() -> Resilience {
    let store = MemoryStore::new().with_api_key("a", "ada");
    Resilience::builder().store(store).build().expect("valid settings")
}

fn would_have(lines: &[String], guard: &str) -> bool {
    matches!(lines, [line] if line.contains("would have rejected") && line.contains(guard))
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_observes_counts_and_lets_pass_without_a_header() {
    let log = Log::start();
    let app = observed.with(embedded());
    let answered = ask(&app, request(&[])).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    assert_eq!(log.lines(), [""; 0]);
    for _ in 0..5 {
        let answered = ask(&app, request(&[])).await;
        assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    }
    let lines = log.lines();
    assert!(would_have(&lines, "observed:1:3600000ms"), "{lines:?}");
    assert!(lines[0].contains("rate_limited"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_observes_takes_nothing_from_one_that_decides_nor_the_other_way_round() {
    let log = Log::start();
    let app = one_of_each.with(embedded());
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let answered = ask(&app, request(&[])).await;
        assert_eq!(answered.status, status);
        assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some(remaining));
        let policy = answered.header("ratelimit-policy");
        assert_eq!(policy.as_deref(), Some("\"default\";q=2;w=3600"), "the decider's alone");
    }
    assert!(would_have(&log.lines(), "86400000ms"), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn each_is_asked_for_in_a_call_of_its_own() {
    let store = ScriptedStore::new().on_take(Answer::ok(room(1, ms(1_000))).after(ms(5)));
    let (answered, took) = timed(&app(one_of_each, over(&store)), request(&[])).await;
    assert_eq!(answered.status, 200);
    assert_eq!((store.calls().take, took), (2, ms(5)), "at the same time");
}

#[tokio::test(start_paused = true)]
async fn an_outage_lets_pass_and_the_log_says_what_would_have_been() {
    let log = Log::start();
    let store = ScriptedStore::new().on_take(Answer::never());
    let (answered, took) = timed(&app(would_be_closed, over(&store)), request(&[])).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    assert_eq!(took, ms(30), "its own deadline");
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(would_have(&lines[1..], "limiter_unavailable"), "{lines:?}");

    let log = Log::start();
    store.on_take(Answer::unavailable());
    let app = app(would_count_here, over(&store));
    for _ in 0..2 {
        let answered = ask(&app, request(&[])).await;
        assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    }
    let lines = log.lines();
    assert!(would_have(&lines[1..], "rate_limited"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_users_quota_observes_too() {
    let log = Log::start();
    let app = by_user.with(embedded());
    for _ in 0..2 {
        let answered = ask(&app, request(&[("x-api-key", "a")])).await;
        assert_eq!(answered.summary(), (200, "ada".into()));
        assert_eq!(answered.lines(), [""; 0]);
    }
    assert!(would_have(&log.lines(), "by_user"), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_flag_that_observes_blocks_nothing_and_adds_no_header() {
    let log = Log::start();
    let store = ScriptedStore::new().on_flag(Answer::ok(Some(true)));
    let app = app(flagged, over(&store));
    let answered = ask(&app, request(&[])).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    assert!(would_have(&log.lines(), "flag:observe-kill"), "{:?}", log.lines());

    store.on_flag(Answer::unavailable());
    let answered = ask(&app, request(&[])).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_listing_says_who_observes() {
    let resilience = over(&ScriptedStore::new()).build().expect("valid settings");
    let policies = resilience.policies();
    let guards = |handler| {
        let policy = policies
            .iter()
            .find(|policy| policy.handler() == handler && policy.module() == module_path!());
        let guards = policy.expect("it is listed").guards().iter();
        guards.map(|guard| guard.guard.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        guards("one_of_each"),
        [
            "rate_limit 2 in 3600s by everybody",
            "rate_limit 1 in 86400s by everybody, observed"
        ]
    );
    assert_eq!(guards("flagged"), ["flag observe-kill blocks when on, observed"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_decider_refuses_does_not_wait_for_one_that_observes() {
    let store = ScriptedStore::new();
    let app = app(one_of_each, over(&store));
    store.on_take(Answer::ok(full(ms(1_000))));
    let (answered, took) = timed(&app, request(&[])).await;
    assert_eq!((answered.status.as_u16(), took), (429, ms(0)));
}
