//! One quota: whose bucket it is, and what it says in an outage.

use std::{net::SocketAddr, time::Duration};

use poem::{Endpoint, EndpointExt, Request, Route, get, handler};
use resilience::{
    Identity, RateLimitHeaders, Resilience, resilient,
    store::{MemoryStore, StoreErrorKind},
    testing::{Answer, ScriptedStore},
};
use resilience_tests::request_from;

use super::{app, ask, full, ms, over, request, room, timed};

#[resilient(rate_limit(2, 60))]
#[handler]
async fn by_address() {}

#[resilient(rate_limit(2, 60, key = global))]
#[handler]
async fn by_everybody() {}

#[resilient(rate_limit(1, 60, key = header("x-tenant")))]
#[handler]
async fn by_tenant() {}

#[resilient(auth = "fail_closed", rate_limit(1, 60, key = user))]
#[handler]
async fn by_user(Identity(user): Identity) -> String {
    user
}

/// The user's team, if they are of one.
fn team(request: &Request) -> Option<String> {
    let user = &Identity::of(request)?.0;
    user.split_once('.').map(|(team, _)| team.to_owned())
}

#[resilient(auth = "fail_closed", rate_limit(1, 60, key = team))]
#[handler]
async fn by_team(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(8, "1h", on_outage = "fail_local", local_share = "25%"))]
#[handler]
async fn a_quarter_here() {}

#[resilient(rate_limit(3, "1h", cost = 2, on_outage = "fail_local", local_share = "1%"))]
#[handler]
async fn one_at_least() {}

#[resilient(rate_limit(
    100,
    "1h",
    algorithm = "token_bucket",
    burst = 10,
    on_outage = "fail_local",
    local_share = "20%"
))]
#[handler]
async fn a_fifth_of_a_bucket() {}

#[resilient(rate_limit(2, 60, key = global, name = "rate-limit-shared"))]
#[handler]
async fn shares() {}

#[resilient(rate_limit(2, 60, key = global, name = "rate-limit-shared"))]
#[handler]
async fn shares_too() {}

#[resilient(rate_limit(2, 60, key = global))]
#[handler]
async fn has_its_own() {}

#[resilient(rate_limit(5, "1h", on_outage = "fail_open", deadline = "30ms"))]
#[handler]
async fn open() {}

#[resilient(rate_limit(5, "1h", on_outage = "fail_closed"))]
#[handler]
async fn closed() {}

#[resilient(rate_limit(2, "1h", on_outage = "fail_local"))]
#[handler]
async fn local() {}

async fn statuses(app: &impl Endpoint, times: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(ask(app, request(&[])).await.status.as_u16());
    }
    statuses
}

fn embedded() -> Resilience {
    let store = MemoryStore::new()
        .with_api_key("a", "ada")
        .with_api_key("b", "bob")
        .with_api_key("a2", "ada");
    Resilience::builder().store(store).build().expect("valid settings")
}

fn from(address: &str) -> Request {
    let address: SocketAddr = address.parse().expect("an address");
    request_from(address, &[])
}

#[tokio::test(start_paused = true)]
async fn an_address_is_a_client_whatever_its_port() {
    let app = by_address.with(embedded());
    for (address, status) in [
        ("203.0.113.7:1", 200),
        ("203.0.113.7:2", 200),
        ("203.0.113.7:3", 429),
        ("[::ffff:203.0.113.7]:4", 429),
        ("203.0.113.8:1", 200),
        ("[2001:db8:1:1::1]:1", 200),
        ("[2001:db8:1:1::2]:1", 200),
        ("[2001:db8:1:1:ffff::3]:1", 429),
        ("[2001:db8:1:2::1]:1", 200),
    ] {
        assert_eq!(ask(&app, from(address)).await.status, status, "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_says_of_its_address_does_not_count() {
    let app = by_address.with(embedded());
    let mut statuses = Vec::new();
    for pretended in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        let mut request = from("203.0.113.7:1");
        for name in ["x-forwarded-for", "x-real-ip", "forwarded"] {
            request
                .headers_mut()
                .insert(name, pretended.parse().expect("a header value"));
        }
        statuses.push(ask(&app, request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_global_quota_is_everybodys() {
    let app = by_everybody.with(embedded());
    assert_eq!(
        ask(&app, from("203.0.113.1:1"))
            .await
            .header("x-ratelimit-remaining")
            .as_deref(),
        Some("1")
    );
    assert_eq!(
        ask(&app, from("203.0.113.2:1"))
            .await
            .header("x-ratelimit-remaining")
            .as_deref(),
        Some("0")
    );
    assert_eq!(ask(&app, from("203.0.113.3:1")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_headers_value_is_a_client_and_so_is_none() {
    let app = by_tenant.with(embedded());
    let tenants = [&[("x-tenant", "a")][..], &[("x-tenant", "b")], &[("x-tenant", "")], &[]];
    for status in [200, 429] {
        for tenant in tenants {
            assert_eq!(ask(&app, request(tenant)).await.status, status, "{tenant:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_users_quota_is_taken_once_the_user_is_verified() {
    let app = by_user.with(embedded());
    let with_key = |key: &'static str| request(&[("x-api-key", key)]);
    for _ in 0..3 {
        let answered = ask(&app, with_key("wrong")).await;
        assert_eq!(answered.summary(), (401, "invalid_api_key".into()));
        assert_eq!(answered.header("x-ratelimit-limit"), None);
    }
    assert_eq!(ask(&app, with_key("a")).await.summary(), (200, "ada".into()));
    assert_eq!(
        ask(&app, with_key("a2")).await.summary(),
        (429, "rate_limited".into()),
        "two keys of one user"
    );
    assert_eq!(ask(&app, with_key("b")).await.summary(), (200, "bob".into()));

    let store = ScriptedStore::new();
    ask(&super::app(by_user, over(&store)), with_key("wrong")).await;
    assert_eq!((store.calls().identity, store.calls().take), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_named_quota_is_shared_and_any_other_is_its_handlers() {
    let app = Route::new()
        .at("/shares", get(shares))
        .at("/shares-too", get(shares_too))
        .at("/own", get(has_its_own))
        .with(embedded());
    for (path, status) in [
        ("/shares", 200),
        ("/shares-too", 200),
        ("/shares", 429),
        ("/shares-too", 429),
        ("/own", 200),
    ] {
        let request = Request::builder().uri(path.parse().expect("a path")).finish();
        assert_eq!(ask(&app, request).await.status, status, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_passes_after_retry_after() {
    let app = by_everybody.with(embedded());
    ask(&app, request(&[])).await;
    ask(&app, request(&[])).await;
    let refused = ask(&app, request(&[])).await;
    let wait: u64 = refused
        .header("retry-after")
        .expect("it is refused")
        .parse()
        .expect("seconds");
    tokio::time::advance(Duration::from_secs(wait)).await;
    assert_eq!(ask(&app, request(&[])).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn each_outage_answer_shows_in_a_header() {
    for kind in [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Answered,
        StoreErrorKind::TimedOut,
    ] {
        let store = ScriptedStore::new().on_take(Answer::error(kind));
        let answered = ask(&app(open, over(&store)), request(&[])).await;
        assert_eq!(answered.summary(), (200, String::new()));
        assert_eq!(answered.lines(), ["x-ratelimit-fallback: open"]);
        let answered = ask(&app(closed, over(&store)), request(&[])).await;
        assert_eq!(answered.summary(), (503, "limiter_unavailable".into()));
        let answered = ask(&app(local, over(&store)), request(&[])).await;
        assert_eq!(answered.header("x-ratelimit-fallback").as_deref(), Some("local"));
        assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some("1"));
    }
}

/// Limits that let a flood pass uncounted, because it is a flood, would be none.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_counted_for_want_of_room_is_refused_whatever_the_policy_says() {
    let store = ScriptedStore::new().on_take(Answer::error(StoreErrorKind::Saturated));
    for refused in [
        ask(&app(open, over(&store)), request(&[])).await,
        ask(&app(closed, over(&store)), request(&[])).await,
        ask(&app(local, over(&store)), request(&[])).await,
    ] {
        assert_eq!(refused.summary(), (503, "overloaded".into()));
        assert_eq!(refused.header("x-ratelimit-fallback"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn this_process_counts_in_an_outage_and_hands_back() {
    let store = ScriptedStore::new().on_take(Answer::unavailable());
    let app = app(local, over(&store));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let answered = ask(&app, request(&[])).await;
        assert_eq!(answered.header("x-ratelimit-fallback").as_deref(), Some("local"));
        seen.push((answered.status.as_u16(), answered.header("x-ratelimit-remaining")));
    }
    assert_eq!(
        seen,
        [
            (200, Some("1".into())),
            (200, Some("0".into())),
            (429, Some("0".into()))
        ]
    );

    store.on_take(Answer::ok(room(1, ms(1_000))));
    let answered = ask(&app, request(&[])).await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.header("x-ratelimit-fallback"), None);
    assert_eq!(answered.header("x-ratelimit-remaining").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_ones_own_knows_the_user_and_none_is_a_key_too() {
    let store = MemoryStore::new()
        .with_api_key("a", "red.ada")
        .with_api_key("b", "red.bob")
        .with_api_key("c", "blue.cid")
        .with_api_key("d", "dan")
        .with_api_key("e", "eve");
    let app = super::app(by_team, Resilience::builder().store(store));
    for (key, status) in [
        ("wrong", 401),
        ("a", 200),
        ("b", 429),
        ("c", 200),
        ("d", 200),
        ("e", 429),
    ] {
        let answered = ask(&app, request(&[("x-api-key", key)])).await;
        assert_eq!(answered.status, status, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_builder_exempts_no_quota_by_address_counts() {
    let store = ScriptedStore::new();
    let settings = || over(&store).exempt_if(|request| request.uri().path() == "/healthz");
    let to = |path: &str| Request::builder().uri(path.parse().expect("a path")).finish();
    let limited = app(by_address, settings());
    let answered = ask(&limited, to("/healthz")).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    assert_eq!(store.calls().take, 0);
    ask(&limited, to("/health")).await;
    assert_eq!(store.calls().take, 1);
    ask(&app(by_everybody, settings()), to("/healthz")).await;
    assert_eq!(store.calls().take, 2, "other quotas count it");
}

#[tokio::test(start_paused = true)]
async fn a_local_share_is_all_that_this_process_counts_by_and_the_headers_say_so() {
    let store = ScriptedStore::new().on_take(Answer::unavailable());
    let quarter = app(a_quarter_here, over(&store));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let answered = ask(&quarter, request(&[])).await;
        assert_eq!(answered.header("x-ratelimit-fallback").as_deref(), Some("local"));
        assert_eq!(answered.header("x-ratelimit-limit").as_deref(), Some("2"));
        let policy = answered.header("ratelimit-policy");
        assert_eq!(policy.as_deref(), Some("\"default\";q=2;w=3600"));
        seen.push((answered.status.as_u16(), answered.header("x-ratelimit-remaining")));
    }
    let remaining = |left: &str| Some(left.to_owned());
    assert_eq!(
        seen,
        [(200, remaining("1")), (200, remaining("0")), (429, remaining("0"))]
    );

    store.on_take(Answer::ok(room(7, ms(1_000))));
    let answered = ask(&quarter, request(&[])).await;
    assert_eq!(answered.header("x-ratelimit-fallback"), None);
    assert_eq!(
        answered.header("x-ratelimit-limit").as_deref(),
        Some("8"),
        "the store is back"
    );

    store.on_take(Answer::unavailable());
    assert_eq!(statuses(&app(one_at_least, over(&store)), 2).await, [200, 429]);
    assert_eq!(
        statuses(&app(a_fifth_of_a_bucket, over(&store)), 3).await,
        [200, 200, 429]
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_merely_exceeded_asks_nobody_else() {
    let store = ScriptedStore::new().on_take(Answer::ok(full(ms(1))));
    for _ in 0..3 {
        let answered = ask(&app(local, over(&store)), request(&[])).await;
        assert_eq!(answered.summary(), (429, "rate_limited".into()));
        assert_eq!(answered.header("x-ratelimit-fallback"), None);
        assert_eq!(answered.header("retry-after").as_deref(), Some("1"), "never 0");
        let answered = ask(&app(a_quarter_here, over(&store)), request(&[])).await;
        assert_eq!(answered.summary(), (429, "rate_limited".into()));
        assert_eq!(answered.header("x-ratelimit-limit").as_deref(), Some("8"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiters_deadline_is_the_policys_before_the_builders() {
    let store = ScriptedStore::new().on_take(Answer::never());
    assert_eq!(timed(&app(open, over(&store)), request(&[])).await.1, ms(30));
    assert_eq!(timed(&app(closed, over(&store)), request(&[])).await.1, ms(80));
    let settings = over(&store).rate_limit_deadline(ms(9));
    assert_eq!(timed(&app(closed, settings), request(&[])).await.1, ms(9));
}

#[tokio::test(start_paused = true)]
async fn each_family_of_headers_can_be_left_out() {
    let store = ScriptedStore::new().on_take(Answer::ok(room(3, ms(1_000))));
    let legacy = ["x-ratelimit-limit: 5", "x-ratelimit-remaining: 3"];
    let ietf = [
        "ratelimit-policy: \"default\";q=5;w=3600",
        "ratelimit: \"default\";r=3;t=1",
    ];
    for (families, lines) in [
        ((true, false), &legacy[..]),
        ((false, true), &ietf),
        ((false, false), &[]),
    ] {
        let (legacy, ietf) = families;
        let settings = over(&store).rate_limit_headers(RateLimitHeaders { legacy, ietf });
        assert_eq!(
            ask(&app(open, settings), request(&[])).await.lines(),
            lines,
            "{families:?}"
        );
    }
}
