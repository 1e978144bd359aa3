//! Several quotas of one handler: taken all or none, shown together.

use poem::{EndpointExt, handler};
use resilience::{
    Identity, Resilience, resilient,
    store::{MemoryStore, Probe, Store, StoreFuture, Take, Taken},
    testing::{Answer, ScriptedStore},
};
use tokio::time::Instant;

use super::{app, ask, full, ms, over, request, room};

#[resilient(rate_limit(5, 60, key = header("x-tenant")), rate_limit(2, "1h", key = global, name = "several-hourly"))]
#[handler]
async fn two_quotas() {}

#[resilient(
    auth = "fail_closed",
    rate_limit(9, 60),
    rate_limit(100, "1d", key = user, name = "several-daily"),
    rate_limit(7, 1, key = global, algorithm = "fixed_window")
)]
#[handler]
async fn three_quotas(Identity(user): Identity) -> String {
    user
}

#[resilient(
    rate_limit(5, 60, on_outage = "fail_local"),
    rate_limit(50, "1h", on_outage = "fail_open"),
    rate_limit(3, "1d", on_outage = "fail_local", key = global)
)]
#[handler]
async fn local_and_open() {}

#[resilient(
    rate_limit(1, "1h", on_outage = "fail_local"),
    rate_limit(50, "1h", key = global, on_outage = "fail_closed")
)]
#[handler]
async fn local_and_closed() {}

#[resilient(auth = "fail_closed", rate_limit(10, 60), rate_limit(1, 60, key = user))]
#[handler]
async fn one_per_user(_user: Identity) {}

const KEY: &[(&str, &str)] = &[("x-api-key", "letmein")];

fn tenant(name: &'static str) -> [(&'static str, &'static str); 1] {
    [("x-tenant", name)]
}

#[tokio::test(start_paused = true)]
async fn what_one_quota_refuses_costs_the_other_nothing() {
    let app = two_quotas.with(
        Resilience::builder()
            .store(MemoryStore::new())
            .build()
            .expect("valid settings"),
    );
    for remaining in ["1", "0"] {
        let answered = ask(&app, request(&tenant("a"))).await;
        assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some(remaining));
    }
    let state = |answered: &super::Answered| {
        let fields = answered.header("ratelimit").expect("it has one");
        fields.split(';').take(2).collect::<Vec<_>>().join(";")
    };
    for _ in 0..5 {
        let answered = ask(&app, request(&tenant("b"))).await;
        assert_eq!(answered.status, 429);
        assert_eq!(state(&answered), "\"several-hourly\";r=0");
    }
    // After the hour, tenant b has all of its own quota but for this one request.
    tokio::time::advance(ms(2 * 3_600_000)).await;
    assert_eq!(state(&ask(&app, request(&tenant("b"))).await), "\"default\";r=4");
}

#[tokio::test(start_paused = true)]
async fn the_tightest_quota_shows_in_the_plain_headers_and_all_in_the_fields() {
    let store = ScriptedStore::new()
        .on_identity(Answer::ok(Some("user-42")))
        .on_take_each(Answer::ok(vec![room(4, ms(10_000)), room(2, ms(500))]));
    let answered = ask(&app(three_quotas, over(&store)), request(KEY)).await;
    assert_eq!(answered.summary(), (200, "user-42".into()));
    // Both phases get the same script, and the user's quota is taken in the second.
    assert_eq!(
        answered.lines(),
        [
            "ratelimit-policy: \"default\";q=9;w=60, \"default-2\";q=7;w=1, \"several-daily\";q=100;w=86400",
            "ratelimit: \"default\";r=4;t=10, \"default-2\";r=2;t=1, \"several-daily\";r=4;t=10",
            "x-ratelimit-limit: 7",
            "x-ratelimit-remaining: 2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_shows_the_quotas_that_refuse_and_the_longest_wait() {
    let store = ScriptedStore::new().on_take_each(Answer::ok(vec![full(ms(1_500)), full(ms(4_500))]));
    let answered = ask(&app(three_quotas, over(&store)), request(KEY)).await;
    assert_eq!(answered.summary(), (429, "rate_limited".into()));
    assert_eq!(answered.header("retry-after").as_deref(), Some("5"));
    assert_eq!(
        answered.header("ratelimit").as_deref(),
        Some("\"default\";r=0;t=2, \"default-2\";r=0;t=5")
    );

    store.on_take_each(Answer::ok(vec![room(0, ms(1_500)), full(ms(4_500))]));
    let answered = ask(&app(three_quotas, over(&store)), request(KEY)).await;
    assert_eq!(answered.header("ratelimit").as_deref(), Some("\"default-2\";r=0;t=5"));
    assert_eq!(
        answered.header("x-ratelimit-limit").as_deref(),
        Some("7"),
        "the one that refuses"
    );
}

#[tokio::test(start_paused = true)]
async fn a_users_quota_that_refuses_leaves_the_others_out_of_the_field() {
    let resilience = Resilience::builder().store(MemoryStore::new().with_api_key("letmein", "user-42"));
    let app = app(one_per_user, resilience);
    assert_eq!(ask(&app, request(KEY)).await.status, 200);
    let answered = ask(&app, request(KEY)).await;
    assert_eq!(answered.summary(), (429, "rate_limited".into()));
    assert!(
        answered
            .header("ratelimit")
            .expect("it has one")
            .starts_with("\"default-2\";r=0;t=")
    );
    assert_eq!(answered.header("x-ratelimit-limit").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn each_quota_falls_back_in_its_own_way() {
    let app = app(local_and_open, over(&ScriptedStore::new().down()));
    let answered = ask(&app, request(&[])).await;
    assert_eq!(answered.status, 200);
    assert_eq!(
        answered.header("x-ratelimit-fallback").as_deref(),
        Some("open"),
        "what matters most"
    );
    assert_eq!(
        answered.header("ratelimit-policy").as_deref(),
        Some("\"default\";q=5;w=60, \"default-3\";q=3;w=86400"),
        "only those that count"
    );
    for status in [200, 200, 429] {
        assert_eq!(
            ask(&app, request(&[])).await.status,
            status,
            "the local ones go on limiting"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_closed_refuses_for_all() {
    let store = ScriptedStore::new().down();
    let app = app(local_and_closed, over(&store));
    for _ in 0..3 {
        let answered = ask(&app, request(&[])).await;
        assert_eq!(answered.summary(), (503, "limiter_unavailable".into()));
        assert_eq!(answered.lines(), ["retry-after: 30", "x-ratelimit-fallback: closed"]);
    }
}

/// A store that forgets some quotas in its answer.
#[derive(Debug)]
struct Forgetful;

impl Store for Forgetful {
    fn identity<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn flag<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<bool>> {
        Box::pin(async { Ok(None) })
    }

    fn take<'a>(&'a self, _: &'a [Take<'a>], _: Instant) -> StoreFuture<'a, Vec<Taken>> {
        Box::pin(async { Ok(vec![room(1, ms(1))]) })
    }

    fn probe(&self, _: Probe, _: Instant) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_leaves_quotas_out_is_none() {
    let app = app(two_quotas, Resilience::builder().store(Forgetful));
    let answered = ask(&app, request(&[])).await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.lines(), ["x-ratelimit-fallback: open"]);
}
