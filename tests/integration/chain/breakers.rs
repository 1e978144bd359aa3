//! Breakers in front of the store, as requests meet them.

use poem::{EndpointExt, handler};
use resilience::{
    BreakerChoice, Identity, Resilience,
    breaker::{BreakerConfig, State},
    resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};

use super::{app, ask, ms, over, request, timed};

#[resilient(auth = "fail_closed", flag("breakers", default = false), rate_limit(30, 60))]
#[handler]
async fn all_three(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn limited() {}

#[resilient(flag("breakers-own", default = false), breaker = "own-name")]
#[handler]
async fn behind_its_own() {}

#[resilient(flag("breakers-shared", default = false), breaker = "shared")]
#[handler]
async fn behind_the_shared() {}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];

/// A store on which every operation hangs, and never comes back.
fn hung() -> ScriptedStore {
    ScriptedStore::new()
        .on_identity(Answer::never())
        .on_flag(Answer::never())
        .on_take(Answer::never())
        .on_probe(Answer::never())
}

fn state_of(resilience: &Resilience, name: &str) -> State {
    let breakers = resilience.breakers();
    breakers
        .iter()
        .find(|breaker| breaker.name() == name)
        .expect("it is known")
        .state()
}

#[tokio::test(start_paused = true)]
async fn once_open_nobody_asks_and_nobody_waits() {
    let store = hung();
    let app = app(all_three, over(&store));
    let waits = [ms(150), ms(150)];
    for wait in waits {
        assert_eq!(timed(&app, request(KEY)).await.1, wait);
    }
    let before = store.calls();
    for _ in 0..100 {
        let (answered, took) = timed(&app, request(KEY)).await;
        assert_eq!((answered.summary(), took), ((503, "auth_unavailable".into()), ms(0)));
        assert_eq!(
            answered.lines(),
            [
                "retry-after: 30",
                "x-flag-fallback: breakers",
                "x-ratelimit-fallback: open"
            ]
        );
    }
    assert_eq!(store.calls(), before);
}

#[tokio::test(start_paused = true)]
async fn operations_isolate_each_other_if_they_have_their_own() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")))
        .on_take(Answer::unavailable())
        .on_probe(Answer::unavailable());
    let resilience = over(&store)
        .breakers(BreakerChoice::PerOperation)
        .build()
        .expect("valid settings");
    let app = all_three.with(resilience.clone());
    for _ in 0..8 {
        let answered = ask(&app, request(KEY)).await;
        assert_eq!(answered.summary(), (200, "ada".into()));
        assert_eq!(answered.lines(), ["x-ratelimit-fallback: open"]);
    }
    assert_eq!(
        (store.calls().take, store.calls().identity, store.calls().flag),
        (5, 8, 8)
    );
    assert_eq!(state_of(&resilience, "rate_limit"), State::Open);
    assert_eq!(state_of(&resilience, "auth"), State::Closed);
    assert_eq!(state_of(&resilience, "flag"), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_shared_breaker_stops_all_operations() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("ada")))
        .on_take(Answer::unavailable())
        .on_probe(Answer::unavailable());
    let resilience = over(&store).build().expect("valid settings");
    for _ in 0..5 {
        ask(&limited.with(resilience.clone()), request(&[])).await;
    }
    assert_eq!(state_of(&resilience, "store"), State::Open);
    let answered = ask(&all_three.with(resilience), request(KEY)).await;
    assert_eq!(answered.summary(), (503, "auth_unavailable".into()));
    assert_eq!(store.calls().identity, 0);
}

#[tokio::test(start_paused = true)]
async fn the_policys_breaker_is_before_the_builders() {
    let store = hung();
    let settings = over(&store).breakers(BreakerChoice::Named("builders"));
    let resilience = settings.build().expect("valid settings");
    for _ in 0..5 {
        ask(&behind_its_own.with(resilience.clone()), request(&[])).await;
    }
    assert_eq!(state_of(&resilience, "own-name"), State::Open);
    assert_eq!(state_of(&resilience, "store"), State::Closed);
    assert_eq!(state_of(&resilience, "builders"), State::Closed);

    let asked = store.calls().flag;
    ask(&behind_its_own.with(resilience.clone()), request(&[])).await;
    assert_eq!(store.calls().flag, asked);
    ask(&behind_the_shared.with(resilience.clone()), request(&[])).await;
    assert_eq!(store.calls().flag, asked + 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nonsense_or_was_not_asked_leaves_the_breaker_alone() {
    for (kind, code, flag) in [
        (StoreErrorKind::Answered, "auth_unavailable", Some("breakers")),
        (StoreErrorKind::Saturated, "overloaded", None),
    ] {
        let store = ScriptedStore::new()
            .on_identity(Answer::error(kind))
            .on_flag(Answer::error(kind))
            .on_take(Answer::error(kind));
        let resilience = over(&store).build().expect("valid settings");
        let app = all_three.with(resilience.clone());
        for _ in 0..10 {
            let answered = ask(&app, request(KEY)).await;
            assert_eq!(answered.summary(), (503, code.into()));
            assert_eq!(answered.header("x-flag-fallback").as_deref(), flag);
        }
        assert_eq!(store.calls().identity, 10);
        assert_eq!(state_of(&resilience, "store"), State::Closed, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_guards_own_rejections_are_not_failures() {
    let store = ScriptedStore::new().on_take(Answer::ok(super::full(ms(1_000))));
    // Each refusal is the store's own.
    let resilience = over(&store).remember_blocked(0).build().expect("valid settings");
    let app = all_three.with(resilience.clone());
    for _ in 0..10 {
        assert_eq!(ask(&app, request(KEY)).await.status, 429);
    }
    store.on_take(Answer::ok(super::room(1, ms(1_000))));
    for _ in 0..10 {
        assert_eq!(ask(&app, request(KEY)).await.status, 401);
    }
    assert_eq!(state_of(&resilience, "store"), State::Closed);
}

/// What was being asked when an earlier guard decided says nothing about the store.
#[tokio::test(start_paused = true)]
async fn questions_that_an_earlier_refusal_cut_short_count_for_nothing() {
    let store = hung().on_take(Answer::ok(super::full(ms(1_000))).after(ms(79)));
    let resilience = over(&store).build().expect("valid settings");
    let app = all_three.with(resilience.clone());
    for _ in 0..10 {
        assert_eq!(ask(&app, request(KEY)).await.status, 429);
    }
    assert_eq!(state_of(&resilience, "store"), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_breakers_of_all_handlers_are_known_from_the_start() {
    let resilience = over(&ScriptedStore::new()).build().expect("valid settings");
    let names: Vec<_> = resilience
        .breakers()
        .iter()
        .map(|breaker| breaker.name().to_owned())
        .collect();
    assert!(
        names.contains(&"own-name".to_owned()) && names.contains(&"store".to_owned()),
        "{names:?}"
    );
    assert!(names.is_sorted());
}

#[tokio::test(start_paused = true)]
async fn an_opening_is_an_event() {
    let store = hung();
    let resilience = over(&store).build().expect("valid settings");
    let mut events = resilience.events();
    let app = behind_its_own.with(resilience.clone());
    for _ in 0..5 {
        ask(&app, request(&[])).await;
    }
    let event = events.try_recv().expect("it has opened");
    assert_eq!(
        (&*event.breaker, event.from, event.to),
        ("own-name", State::Closed, State::Open)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_no_use_undoes_no_failure() {
    let store = ScriptedStore::new();
    let settings = over(&store).breaker(BreakerConfig::default().with_failures_in_a_row(2));
    let resilience = settings.build().expect("valid settings");
    let app = limited.with(resilience.clone());
    for (kind, state) in [
        (StoreErrorKind::Unavailable, State::Closed),
        (StoreErrorKind::Answered, State::Closed),
        (StoreErrorKind::Unavailable, State::Open),
    ] {
        store.on_take(Answer::error(kind));
        ask(&app, request(&[])).await;
        assert_eq!(state_of(&resilience, "store"), state, "{kind:?}");
    }
}
