//! Authentication by API key.

use poem::{Request, handler, http::HeaderValue};
use resilience::{
    Identity, resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};

use super::{app, ask, ms, over, request, timed};

#[resilient(auth = "fail_closed")]
#[handler]
async fn whoami(Identity(user): Identity) -> String {
    user
}

#[resilient(auth("fail_closed", header = "x-token", deadline = "20ms"))]
#[handler]
async fn by_token(Identity(user): Identity) -> String {
    user
}

fn known() -> ScriptedStore {
    ScriptedStore::new().on_identity(Answer::ok(Some("user-42")))
}

fn keys(values: &[&[u8]]) -> Request {
    let mut request = Request::default();
    for value in values {
        let value = HeaderValue::from_bytes(value).expect("a header value");
        request.headers_mut().append("x-api-key", value);
    }
    request
}

#[tokio::test(start_paused = true)]
async fn what_no_look_up_can_make_good_is_not_looked_up() {
    let store = known();
    let app = app(whoami, over(&store));
    let too_long = [b'k'; 513];
    for (values, code) in [
        (&[][..], "missing_api_key"),
        (&[&b""[..]], "missing_api_key"),
        (&[&too_long[..]], "invalid_api_key"),
        (&[&b"letmein"[..], b"letmein"], "invalid_api_key"),
        (&[&b"letmein"[..], b""], "invalid_api_key"),
        (&[&b"\xff\xfe"[..]], "invalid_api_key"),
    ] {
        assert_eq!(
            ask(&app, keys(values)).await.summary(),
            (401, code.into()),
            "{values:?}"
        );
    }
    assert_eq!(store.calls().identity, 0);

    let longest = [b'k'; 512];
    assert_eq!(ask(&app, keys(&[&longest])).await.summary(), (200, "user-42".into()));
    assert_eq!(store.calls().identity, 1);
}

#[tokio::test(start_paused = true)]
async fn bad_keys_are_refused_while_the_breaker_is_open() {
    let store = known().down();
    let app = app(whoami, over(&store));
    for _ in 0..6 {
        assert_eq!(
            ask(&app, keys(&[b"letmein"])).await.summary(),
            (503, "auth_unavailable".into())
        );
    }
    assert_eq!(ask(&app, keys(&[])).await.summary(), (401, "missing_api_key".into()));
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_in_unverified_whatever_fails() {
    for (kind, code) in [
        (StoreErrorKind::Unavailable, "auth_unavailable"),
        (StoreErrorKind::TimedOut, "auth_unavailable"),
        (StoreErrorKind::Answered, "auth_unavailable"),
        (StoreErrorKind::Saturated, "overloaded"),
    ] {
        let store = ScriptedStore::new().on_identity(Answer::error(kind));
        let answered = ask(&app(whoami, over(&store)), keys(&[b"letmein"])).await;
        assert_eq!(answered.summary(), (503, code.into()), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_header_and_the_deadline_are_the_policys_before_the_builders() {
    let store = known();
    let token = || request(&[("x-token", "letmein")]);
    let app = app(by_token, over(&store).auth_header("x-other").auth_deadline(ms(500)));
    assert_eq!(ask(&app, token()).await.summary(), (200, "user-42".into()));
    let other = request(&[("x-other", "letmein")]);
    assert_eq!(ask(&app, other).await.summary(), (401, "missing_api_key".into()));

    store.on_identity(Answer::never());
    let (answered, took) = timed(&app, token()).await;
    assert_eq!((answered.code().as_str(), took), ("auth_unavailable", ms(20)));
}

#[tokio::test(start_paused = true)]
async fn the_builders_header_and_deadline_are_the_default() {
    let store = known();
    let app = app(whoami, over(&store).auth_header("X-Other").auth_deadline(ms(40)));
    let other = || request(&[("x-other", "letmein")]);
    assert_eq!(ask(&app, other()).await.summary(), (200, "user-42".into()));

    store.on_identity(Answer::never());
    assert_eq!(timed(&app, other()).await.1, ms(40));
}
