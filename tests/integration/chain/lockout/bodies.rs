//! The body that names the account: read once, and handed on as it came.

use std::io;

use futures_util::{StreamExt, stream};
use poem::Body;
use resilience::Resilience;

use super::{attempts::settled, *};

#[resilient(lockout(1, "15m", key = account("form:username")))]
#[handler]
async fn form(body: String) -> (StatusCode, String) {
    (StatusCode::UNAUTHORIZED, body)
}

fn chunked(chunks: Vec<&'static str>) -> Request {
    let chunks = chunks.into_iter().map(|chunk| Ok::<_, io::Error>(chunk.as_bytes()));
    Request::builder()
        .method(Method::POST)
        .body(Body::from_bytes_stream(stream::iter(chunks)))
}

#[tokio::test(start_paused = true)]
async fn the_handler_reads_every_byte_however_it_came() {
    let app = app(form, Resilience::builder().memory());
    let body = "username=ada&password=%00%ff&x=";
    let answered = ask(&app, chunked(vec!["user", "name=a", "", "da&password=%00%ff&x="])).await;
    assert_eq!((answered.status.as_u16(), answered.body.as_str()), (401, body));
    assert_eq!(ask(&app, post("username=%61DA")).await.code(), "locked_out");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_names_no_account_does_not_reach_the_handler_and_is_no_attempt() {
    for body in [
        "",
        "{",
        "{}",
        "{\"username\":\"\"}",
        "{\"username\":\" \"}",
        "{\"username\":7}",
        "{\"username\":\"eve\",\"username\":\"ada\"}",
        &format!("{{\"username\":\"{}\"}}", "x".repeat(513)),
    ] {
        let store = ScriptedStore::new();
        let app = app(login, over(&store));
        assert_eq!(
            ask(&app, post(body)).await.summary(),
            (400, "account_unreadable".into()),
            "{body}"
        );
        // A flood of them costs the store nothing.
        assert_eq!((store.calls().begin, store.calls().settle), (0, 0), "{body}");
    }
}

/// Of a login that locks an address after eight failures. No password is checked in any of these.
#[tokio::test(start_paused = true)]
async fn forms_that_cannot_be_read_lock_no_address() {
    let app = app(login, Resilience::builder().memory());
    let padded = "x".repeat(65_537);
    for nth in 0..30 {
        let body = ["{\"username\":\"\",\"password\":\"\"}", "{}", &padded][nth % 3];
        let refused = ask(&app, post(body)).await.status;
        assert_eq!(refused, if nth % 3 == 2 { 413 } else { 400 });
        // The answer does not wait for the task that gives the attempt back.
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&app, attempt("ada", "200")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_up_to_a_limit() {
    let settings = || Resilience::builder().memory().login_body_limit(64);
    let fits = format!("{:<64}", "{\"username\":\"ada\",\"password\":\"200\"}");
    let over = format!("{fits} ");
    let app = app(login, settings());
    assert_eq!(ask(&app, post(&fits)).await.status, 200);
    let refused = ask(&app, post(&over)).await;
    assert_eq!(refused.summary(), (413, "body_too_large".into()));
    // Also one that does not say how long it is, or never ends.
    let endless = stream::repeat_with(|| Ok::<_, io::Error>(&b"{\"a\":"[..])).boxed();
    let request = Request::builder()
        .method(Method::POST)
        .body(Body::from_bytes_stream(endless));
    assert_eq!(ask(&app, request).await.status, 413);
    // Nor is a byte waited for if the length says it already.
    let request = Request::builder()
        .method(Method::POST)
        .header("content-length", "65")
        .body(Body::from_bytes_stream(stream::pending::<
            Result<&'static [u8], io::Error>,
        >()));
    assert_eq!(ask(&app, request).await.status, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_slow_is_not_waited_for() {
    let app = app(login, Resilience::builder().memory());
    let slow = stream::iter([Ok::<_, io::Error>(&b"{"[..])]).chain(stream::pending());
    let request = Request::builder()
        .method(Method::POST)
        .body(Body::from_bytes_stream(slow));
    let (refused, took) = super::super::timed(&app, request).await;
    assert_eq!(refused.summary(), (408, "body_timeout".into()));
    assert!(
        (Duration::from_secs(5)..Duration::from_millis(5_010)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_names_nobody() {
    let store = ScriptedStore::new();
    let app = app(login, over(&store));
    let broken = stream::iter([
        Ok(&b"{\"username\":\"ada\",\"password\":\"200\"}"[..]),
        Err(io::Error::other("gone")),
    ]);
    let request = Request::builder()
        .method(Method::POST)
        .body(Body::from_bytes_stream(broken));
    assert_eq!(ask(&app, request).await.summary(), (400, "account_unreadable".into()));
    assert_eq!((store.calls().begin, store.calls().settle), (0, 0));
    // One that is readable and refused later is given back.
    store.on_begin_locked("account:", Duration::from_secs(1));
    assert_eq!(ask(&app, attempt("ada", "200")).await.status, 429);
    settled(&store, 1).await;
    assert_eq!(store.settled(), [(address(), Settle::GiveBack)]);
}
