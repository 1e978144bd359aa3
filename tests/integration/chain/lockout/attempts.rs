//! What becomes of an attempt.

use futures_util::future::join_all;
use poem::{
    EndpointExt,
    web::{Data, Json},
};
use resilience::{Identity, Resilience, store::RedisStore};
use resilience_tests::{RedisServer, eventually};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

fn memory(handler: impl Endpoint) -> impl Endpoint<Output = Response> {
    app(handler, Resilience::builder().memory())
}

#[tokio::test(start_paused = true)]
async fn wrong_passwords_lock_the_account_and_say_nothing_about_it() {
    let app = memory(login);
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    let locked = ask(&app, attempt("ada", "200")).await;
    assert_eq!(locked.summary(), (429, "locked_out".into()));
    assert_eq!(locked.lines(), ["retry-after: 900"]);
    // Other spellings are the same account, other accounts are not.
    assert_eq!(status(&app, " ADA\u{a0}", "200").await, 429);
    assert_eq!(status(&app, "eve", "200").await, 200);
}

#[tokio::test(start_paused = true)]
async fn twenty_addresses_would_be_locked_out_one_by_one() {
    let app = memory(login);
    for nth in 0..8 {
        assert_eq!(status(&app, &format!("user-{nth}"), "401").await, 401);
    }
    assert_eq!(status(&app, "ada", "200").await, 429);
}

#[tokio::test(start_paused = true)]
async fn each_answer_settles_its_attempt() {
    let (cleared, back, failed) = (Settle::Clear, Settle::GiveBack, Settle::Fail);
    let (success, none, failure) = ((cleared, back), (back, back), (failed, failed));
    for (password, (of_account, of_address)) in [
        ("200", success),
        ("204", success),
        ("401", failure),
        ("403", failure),
        ("303", failure),
        ("400", failure),
        ("404", failure),
        ("422", failure),
        ("429", failure),
        ("500", none),
        ("503", none),
        ("200 failed", failure),
        ("303 succeeded", success),
        ("401 none", none),
        ("400 none", none),
        ("500 failed", failure),
        ("500 succeeded", success),
    ] {
        let store = ScriptedStore::new();
        let app = app(login, over(&store));
        ask(&app, attempt("ada", password)).await;
        // Once the answer is there, they are settled.
        let mut expected = [(address(), of_address), (account("ada"), of_account)];
        let mut found = store.settled();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, expected, "{password}");
        assert_eq!((store.calls().begin, store.calls().settle), (2, 1));
    }
}

#[resilient(lockout(2, "15m", key = account("json:/username")))]
#[handler]
async fn oauth(body: String) -> poem::Result<Response> {
    answer(&body)
}

/// Such as OAuth's `invalid_grant`.
#[tokio::test(start_paused = true)]
async fn wrong_passwords_that_are_answered_with_400_or_422_lock_too() {
    for refused in ["400", "422"] {
        let app = memory(oauth);
        for _ in 0..2 {
            assert_eq!(status(&app, "ada", refused).await.to_string(), refused);
        }
        assert_eq!(ask(&app, attempt("ada", refused)).await.code(), "locked_out");
    }
}

#[derive(serde::Deserialize)]
struct Typed {
    #[expect(dead_code, reason = "it only has to be there")]
    username: String,
    #[expect(dead_code, reason = "it only has to be there")]
    pin: u16,
}

#[resilient(lockout(2, "15m", key = account("json:/username")), lockout(2, "15m", key = ip))]
#[handler]
async fn typed(Json(_sent): Json<Typed>) -> StatusCode {
    StatusCode::UNAUTHORIZED
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_handlers_extractor_refuses_is_no_attempt() {
    let app = memory(typed);
    let sent = |number: &str| {
        Request::builder()
            .method(Method::POST)
            .content_type("application/json")
            .body(format!("{{\"username\":\"ada\",\"pin\":{number}}}"))
    };
    for _ in 0..20 {
        assert_eq!(app.get_response(sent("\"x\"")).await.status(), 400);
    }
    for expected in [401, 401, 429] {
        assert_eq!(app.get_response(sent("1")).await.status(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_clears_nothing_of_the_address_but_its_own_attempt() {
    let app = memory(login);
    for round in 0..3 {
        for _ in 0..2 {
            assert_eq!(status(&app, "ada", "401").await, 401, "{round}");
        }
        assert_eq!(status(&app, "ada", "200").await, 200, "{round}");
    }
    // Six stand on the address by now.
    assert_eq!(status(&app, "eve", "401").await, 401);
    assert_eq!(status(&app, "eve", "401").await, 401);
    assert_eq!(status(&app, "ada", "200").await, 429);
}

#[tokio::test(start_paused = true)]
async fn a_locked_account_costs_the_address_nothing() {
    let store = ScriptedStore::new();
    store.on_begin_locked("account:", Duration::from_secs(60));
    let app = app(login, over(&store));
    let locked = ask(&app, attempt("ada", "200")).await;
    assert_eq!(
        (locked.status.as_u16(), locked.header("retry-after")),
        (429, Some("60".into()))
    );
    settled(&store, 1).await;
    assert_eq!(store.settled(), [(address(), Settle::GiveBack)]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_remembered_is_answered_before_the_body_is_looked_at() {
    let store = ScriptedStore::new();
    store.on_begin_locked("ip:", Duration::from_secs(60));
    let app = app(login, over(&store));
    // Nothing is known of the address yet, and nothing is asked for a body that no handler will see.
    let unreadable = ask(&app, post("no account in here")).await;
    assert_eq!(unreadable.summary(), (400, "account_unreadable".into()));
    assert_eq!(store.calls().begin, 0);
    assert_eq!(
        ask(&app, attempt("ada", "200")).await.summary(),
        (429, "locked_out".into())
    );
    assert_eq!(
        ask(&app, post("no account in here")).await.summary(),
        (429, "locked_out".into())
    );
    assert_eq!((store.calls().begin, store.settled()), (1, vec![]));
}

/// A second secret of a verified user.
#[resilient(auth = "fail_closed", lockout(2, "1m, 5m", key = user))]
#[handler]
async fn pin(Identity(_user): Identity) -> StatusCode {
    StatusCode::FORBIDDEN
}

#[tokio::test(start_paused = true)]
async fn a_verified_user_has_a_tally_of_its_own() {
    let store = ScriptedStore::new().on_identity(Answer::ok(Some("user-42")));
    let app = app(pin, over(&store));
    store.on_begin_locked(ClientKey::user("user-42").as_str(), Duration::from_secs(7));
    let request = || Request::builder().header("x-api-key", "letmein").finish();
    assert_eq!(ask(&app, request()).await.header("retry-after"), Some("7".into()));
    store.on_begin_locked(ClientKey::user("user-43").as_str(), Duration::from_secs(7));
    // The lock is remembered for a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&app, request()).await.status, 403);
    // Who is not verified does not get as far.
    assert_eq!(ask(&app, Request::default()).await.status, 401);
    assert_eq!(store.calls().begin, 2);
}

fn device(request: &Request) -> Option<String> {
    request.header("x-device").map(str::to_owned)
}

#[resilient(lockout(1, "1m", key = device))]
#[handler]
async fn pair() -> StatusCode {
    StatusCode::FORBIDDEN
}

#[tokio::test(start_paused = true)]
async fn whoever_has_no_key_is_nobody_whom_others_could_lock_out() {
    let store = ScriptedStore::new();
    let app = app(pair, over(&store));
    assert_eq!(
        ask(&app, Request::default()).await.summary(),
        (400, "account_unreadable".into())
    );
    assert_eq!(store.calls().begin, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_ones_own_has_a_tally_for_each_value() {
    let app = memory(pair);
    let request = |device| Request::builder().header("x-device", device).finish();
    for (device, status) in [("a", 403), ("a", 429), ("b", 403), ("b", 429)] {
        assert_eq!(ask(&app, request(device)).await.status, status);
    }
}

#[resilient(
    lockout(1, "1m", key = account("json:/username"), mode = "observe"),
    lockout(3, "1m", key = ip)
)]
#[handler]
async fn observed(body: String) -> poem::Result<Response> {
    answer(&body)
}

#[tokio::test(start_paused = true)]
async fn one_that_observes_refuses_nobody_and_hinders_no_other() {
    let app = memory(observed);
    for _ in 0..3 {
        assert_eq!(status(&app, "ada", "401").await, 401);
    }
    assert_eq!(status(&app, "ada", "401").await, 429);
    // Nor does it mind a body without an account.
    let app = memory(observed);
    assert_eq!(ask(&app, post("{\"password\":\"200\"}")).await.status, 200);
}

#[resilient(lockout(5, "15m", key = account("json:/username"), deadline = "20s"))]
#[handler]
async fn slow_login(Data(reached): Data<&Arc<AtomicUsize>>) -> StatusCode {
    reached.fetch_add(1, Ordering::SeqCst);
    StatusCode::UNAUTHORIZED
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_guesses_over_two_instances_five_reach_the_handler() {
    let redis = RedisServer::start();
    let reached = Arc::new(AtomicUsize::new(0));
    let mut apps = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::new(redis.url()).unwrap();
        eventually("connected", async || store.connections() == 2).await;
        let resilience = Resilience::builder().store(store).build().unwrap();
        apps.push(slow_login.data(Arc::clone(&reached)).with(resilience));
    }
    let guesses = (0..200).map(|nth| ask(&apps[nth % 2], attempt("ada", "guess")));
    let answers = join_all(guesses).await;
    assert_eq!(reached.load(Ordering::SeqCst), 5);
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(401), count(429)), (5, 195));
    let locked = ask(&apps[0], attempt("ada", "guess")).await;
    assert_eq!(
        (locked.code().as_str(), locked.header("retry-after").as_deref()),
        ("locked_out", Some("900"))
    );
}

/// Waits until this many calls have settled something: what is given back is not waited for.
pub(super) async fn settled(store: &ScriptedStore, calls: usize) {
    eventually("it is settled", async || store.calls().settle >= calls).await;
}
