//! Flags whose value the store has, but which is neither on nor off.

use poem::{EndpointExt, handler};
use resilience::{
    Resilience, resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};
use tokio::time::advance;

use super::{ask, ms, outage_log::Log, over, request};

#[resilient(flag("unreadable-one", default = false))]
#[handler]
async fn one() {}

#[resilient(flag("unreadable-one", default = false))]
#[handler]
async fn one_again() {}

#[resilient(flag("unreadable-two", default = true, mode = "observe"))]
#[handler]
async fn two() {}

async fn unreadable(resilience: &Resilience) -> Vec<String> {
    let health = resilience.health().await;
    assert!(health.store_reachable);
    assert_eq!(health.is_degraded(), !health.unreadable_flags.is_empty());
    health.unreadable_flags
}

#[tokio::test(start_paused = true)]
async fn health_names_unreadable_flags_until_the_next_readable_answer() {
    let store = ScriptedStore::new();
    let resilience = over(&store).build().expect("valid settings");
    let app_one = one.with(resilience.clone());
    let app_two = two.with(resilience.clone());
    assert_eq!(unreadable(&resilience).await, [""; 0]);

    store.on_flag(Answer::unreadable());
    let answered = ask(&app_two, request(&[])).await;
    assert_eq!(answered.status, 200);
    let answered = ask(&app_one, request(&[])).await;
    assert_eq!(answered.header("x-flag-fallback"), Some("unreadable-one".into()));
    assert_eq!(unreadable(&resilience).await, ["unreadable-one", "unreadable-two"]);

    // An outage tells nothing about the value.
    store.on_flag(Answer::error(StoreErrorKind::Saturated));
    ask(&app_one, request(&[])).await;
    assert_eq!(unreadable(&resilience).await, ["unreadable-one", "unreadable-two"]);

    // Any handler's answer counts, and so does that of a flag that is no longer set.
    store.on_flag(Answer::ok(None));
    ask(&one_again.with(resilience.clone()), request(&[])).await;
    assert_eq!(unreadable(&resilience).await, ["unreadable-two"]);
    store.on_flag(Answer::ok(Some(false)));
    ask(&app_two, request(&[])).await;
    assert_eq!(unreadable(&resilience).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn each_unreadable_flag_warns_once_a_second_over_all_handlers() {
    let log = Log::start();
    let store = ScriptedStore::new().on_flag(Answer::unreadable());
    let resilience = over(&store).build().expect("valid settings");
    let (first, again) = (one.with(resilience.clone()), one_again.with(resilience.clone()));
    let other = two.with(resilience);
    for _ in 0..5 {
        ask(&first, request(&[])).await;
        ask(&again, request(&[])).await;
        ask(&other, request(&[])).await;
    }
    let of = |flag: &str| {
        let of_flag = |line: &String| line.contains(&format!("flag=\"{flag}\"")) && line.contains("unreadable");
        log.lines().into_iter().filter(of_flag).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("unreadable-one").len(), of("unreadable-two").len()),
        (1, 1),
        "{:?}",
        log.lines()
    );
    assert!(of("unreadable-one")[0].starts_with("WARN"));
    advance(ms(1_000)).await;
    ask(&again, request(&[])).await;
    assert!(of("unreadable-one")[1].contains("unsaid=9"), "{:?}", log.lines());
}
