//! Breakers over HTTP: what operators get, and what everybody else does.

use std::time::{Duration, SystemTime};

use futures_util::stream::{self, BoxStream};
use poem::{
    Body, Endpoint, EndpointExt, Request, Response, Route,
    http::{Method, StatusCode, header},
};
use resilience::{
    Dependencies, ErrorBody, Resilience,
    breaker::State,
    guard::BoxFuture,
    sharing::{
        HoldState, SharedBreakers,
        admin::{Author, BearerToken, BreakerAdmin, Denied, OperatorCheck},
    },
    store::{
        BreakerBoard, Probe, Store, StoreError, StoreErrorKind, StoreFuture, Take, Taken,
        board::{At, Board, Entry, Leased, NewHold, Presence, Trip},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

const TOKEN: &str = "3f1c9a04e7b25d68";
const BEARER: &str = "Bearer 3f1c9a04e7b25d68";
const ORDER: &str = r#"{"state":"open","reason":"they deploy"}"#;

fn resilience() -> Resilience {
    Resilience::builder()
        .memory()
        .dependencies(Dependencies::new())
        .share_breakers("payments-team")
        .build()
        .expect("valid")
}

fn breakers() -> SharedBreakers {
    resilience().shared_breakers().expect("they are shared")
}

fn mounted(breakers: &SharedBreakers, check: impl OperatorCheck) -> impl Endpoint<Output = Response> {
    let admin = BreakerAdmin::new(breakers.clone(), check);
    Route::new().nest("/admin/breakers", admin).map_to_response()
}

fn with_token(breakers: &SharedBreakers) -> impl Endpoint<Output = Response> {
    mounted(breakers, BearerToken::new("ada", TOKEN).expect("long enough"))
}

/// An operator's request below the mount point.
fn request(method: Method, path: &str) -> Request {
    let request = Request::builder().method(method);
    let request = request.header(header::AUTHORIZATION, BEARER);
    request.uri_str(format!("/admin/breakers{path}")).finish()
}

fn order(path: &str, body: impl Into<Body>) -> Request {
    let mut request = request(Method::PUT, path);
    request.headers_mut().insert(
        header::CONTENT_TYPE,
        "application/json".parse().expect("a header value"),
    );
    request.set_body(body);
    request
}

async fn ask(app: &impl Endpoint<Output = Response>, request: Request) -> (StatusCode, Value, Response) {
    let mut response = app.get_response(request).await;
    assert_eq!(response.header(header::CACHE_CONTROL), Some("no-store"), "{response:?}");
    let body = response.take_body().into_bytes().await.expect("a whole body");
    let body = serde_json::from_slice(&body).expect("every answer is JSON");
    (response.status(), body, response)
}

/// Status and code of a refusal.
async fn refused(app: &impl Endpoint<Output = Response>, request: Request) -> (u16, String) {
    let (status, body, _) = ask(app, request).await;
    assert_eq!(body["statusCode"], status.as_u16(), "{body}");
    (status.as_u16(), body["error"].as_str().expect("a code").to_owned())
}

/// What the store has of a breaker.
async fn held(breakers: &SharedBreakers, name: &str) -> Option<(HoldState, String, String, Option<Duration>)> {
    let listed = breakers.list().await.expect("the store answers");
    let hold = listed.into_iter().find(|status| status.name == name)?.hold?;
    Some((hold.state, hold.reason, hold.author, hold.ends_in))
}

#[tokio::test]
async fn a_breaker_is_held_shown_and_let_go_of() {
    let breakers = breakers();
    let app = with_token(&breakers);
    let (status, body, _) = ask(&app, request(Method::GET, "")).await;
    assert_eq!((status, body), (StatusCode::OK, json!({ "breakers": [] })));

    for (state, shown) in [("open", State::Open), ("closed", State::Closed)] {
        let wanted = json!({ "state": state, "reason": "they deploy", "expires_in": "10m" });
        let (status, body, _) = ask(&app, order("/payments/override", wanted.to_string())).await;
        let given = json!({ "state": state, "reason": "they deploy", "author": "ada", "ends_in_ms": 600_000 });
        assert_eq!(
            (status, body),
            (StatusCode::OK, json!({ "name": "payments", "override": given }))
        );

        let listed = breakers.list().await.expect("the store answers");
        assert_eq!((listed.len(), listed[0].state), (1, shown));
        assert!(listed[0].since.is_some_and(|since| since <= SystemTime::now()));
        let (status, one, _) = ask(&app, request(Method::GET, "/payments")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            (&one["name"], &one["state"], &one["reason"], &one["by"]),
            (&json!("payments"), &json!(state), &json!("they deploy"), &json!("ada"))
        );
        assert_eq!(
            (&one["override"]["state"], &one["override"]["author"]),
            (&json!(state), &json!("ada"))
        );
        let ends_in = one["override"]["ends_in_ms"].as_u64().expect("it ends");
        assert!((1..=600_000).contains(&ends_in), "{one}");
        for root in ["", "/"] {
            let (_, all, _) = ask(&app, request(Method::GET, root)).await;
            assert_eq!(all["breakers"][0]["name"], "payments");
        }
    }

    for was_held in [true, false] {
        let (status, body, _) = ask(&app, request(Method::DELETE, "/payments/override")).await;
        let expected = json!({ "name": "payments", "released": was_held });
        assert_eq!((status, body), (StatusCode::OK, expected));
    }
    assert_eq!(held(&breakers, "payments").await, None);
}

#[tokio::test]
async fn an_order_without_an_end_stands() {
    let breakers = breakers();
    let app = with_token(&breakers);
    let (_, body, _) = ask(&app, order("/payments/override", ORDER)).await;
    assert_eq!(body["override"]["ends_in_ms"], Value::Null);
    let expected = (HoldState::Open, "they deploy".to_owned(), "ada".to_owned(), None);
    assert_eq!(held(&breakers, "payments").await, Some(expected));
}

#[tokio::test]
async fn names_of_any_letters_are_held() {
    let breakers = breakers();
    let app = with_token(&breakers);
    let longest = "x".repeat(128);
    for (path, name) in [
        ("a%2Fb", "a/b"),
        ("zahlungen%20%C3%BC", "zahlungen ü"),
        ("a+b", "a+b"),
        ("override", "override"),
        ("%2e%2e", ".."),
        (&longest, &longest),
    ] {
        let (status, body, _) = ask(&app, order(&format!("/{path}/override"), ORDER)).await;
        assert_eq!((status, &body["name"]), (StatusCode::OK, &json!(name)));
        assert!(held(&breakers, name).await.is_some(), "{name}");
        let (status, body, _) = ask(&app, request(Method::GET, &format!("/{path}"))).await;
        assert_eq!((status, &body["name"]), (StatusCode::OK, &json!(name)));
        let (_, body, _) = ask(&app, request(Method::DELETE, &format!("/{path}/override"))).await;
        assert_eq!(body["released"], true, "{name}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_changes_nothing() {
    let breakers = breakers();
    let app = with_token(&breakers);
    let reason = |length: usize| json!({ "state": "open", "reason": "r".repeat(length) }).to_string();
    let padded = format!("{ORDER}{}", " ".repeat(4 * 1024));
    for (path, body, expected) in [
        ("/payments/override", "", (400, "order_invalid")),
        ("/payments/override", "{}", (400, "order_invalid")),
        (
            "/payments/override",
            r#"{"state":"open","reason":""}"#,
            (400, "order_invalid"),
        ),
        (
            "/payments/override",
            r#"{"state":"open","reason":"r","author":"eve"}"#,
            (400, "order_invalid"),
        ),
        ("/payments/override", &reason(513), (400, "order_invalid")),
        ("/payments/override", &reason(5_000), (413, "body_too_large")),
        ("/payments/override", &padded, (413, "body_too_large")),
        (&format!("/{}/override", "x".repeat(129)), ORDER, (400, "order_invalid")),
        ("//override", ORDER, (400, "order_invalid")),
        ("/a/b/override", ORDER, (404, "not_found")),
        ("/payments/override/", ORDER, (404, "not_found")),
        ("/payments/hold", ORDER, (404, "not_found")),
        ("/payments", ORDER, (405, "method_not_allowed")),
        ("", ORDER, (405, "method_not_allowed")),
    ] {
        let answer = refused(&app, order(path, body.to_owned())).await;
        assert_eq!((answer.0, &*answer.1), expected, "{path}: {body:.80}");
    }
    // poem's own router refuses it sooner.
    let unmounted = BreakerAdmin::new(breakers.clone(), |_: &Request| Ok(Author::new("ada")));
    let mut no_text = order("", ORDER);
    *no_text.uri_mut() = "/%FF/override".parse().expect("a URI");
    let answer = refused(&unmounted, no_text).await;
    assert_eq!((answer.0, &*answer.1), (400, "order_invalid"));
    assert_eq!(breakers.list().await.expect("the store answers"), []);
    // The longest reason that fits.
    let (status, _, _) = ask(&app, order("/payments/override", reason(512))).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn other_ways_to_ask_are_refused_and_say_which_there_are() {
    let breakers = breakers();
    let app = with_token(&breakers);
    for (method, path, allowed) in [
        (Method::POST, "", "GET, HEAD"),
        (Method::DELETE, "/payments", "GET, HEAD"),
        (Method::POST, "/payments/override", "PUT, DELETE"),
        (Method::GET, "/payments/override", "PUT, DELETE"),
    ] {
        let (status, _, response) = ask(&app, request(method, path)).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(response.header(header::ALLOW), Some(allowed), "{path}");
    }
    for path in ["/unknown", "/payments/"] {
        let answer = refused(&app, request(Method::GET, path)).await;
        assert_eq!((answer.0, &*answer.1), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn no_form_of_another_site_gives_an_order() {
    let breakers = breakers();
    let app = with_token(&breakers);
    for types in [
        &[][..],
        &["text/plain"],
        &["application/x-www-form-urlencoded"],
        &["multipart/form-data; boundary=application/json"],
        &["text/plain; charset=application/json"],
        &["application/jsonp"],
        &["application/json, text/plain"],
        &["application/json", "text/plain"],
        &["application/problem+json"],
    ] {
        let mut request = order("/payments/override", ORDER);
        request.headers_mut().remove(header::CONTENT_TYPE);
        for media in types {
            let media = media.parse().expect("a header value");
            request.headers_mut().append(header::CONTENT_TYPE, media);
        }
        let answer = refused(&app, request).await;
        assert_eq!((answer.0, &*answer.1), (415, "unsupported_media_type"), "{types:?}");
    }
    assert_eq!(held(&breakers, "payments").await, None);
    for media in ["application/json; charset=utf-8", "Application/JSON"] {
        let mut request = order("/payments/override", ORDER);
        request
            .headers_mut()
            .insert(header::CONTENT_TYPE, media.parse().expect("a header value"));
        assert_eq!(ask(&app, request).await.0, StatusCode::OK, "{media}");
    }
}

#[tokio::test]
async fn nobody_gets_in_without_the_token() {
    let breakers = breakers();
    let app = with_token(&breakers);
    for sent in [
        &[][..],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &["Bearer 3f1c9a04e7b25d6"],
        &["Bearer 3f1c9a04e7b25d680"],
        &["Basic 3f1c9a04e7b25d68"],
        &[TOKEN],
        &[BEARER, BEARER],
    ] {
        for (method, path) in [
            (Method::GET, ""),
            (Method::GET, "/payments"),
            (Method::GET, "/no/such/route"),
            (Method::PUT, "/payments/override"),
            (Method::DELETE, "/payments/override"),
            (Method::POST, ""),
        ] {
            let mut request = order(path, ORDER);
            request.set_method(method);
            request.headers_mut().remove(header::AUTHORIZATION);
            for value in sent {
                let value = value.parse().expect("a header value");
                request.headers_mut().append(header::AUTHORIZATION, value);
            }
            let (status, body, response) = ask(&app, request).await;
            assert_eq!(
                (status.as_u16(), &body["error"]),
                (401, &json!("not_an_operator")),
                "{sent:?}"
            );
            assert_eq!(response.header(header::WWW_AUTHENTICATE), Some("Bearer"));
        }
    }
    assert_eq!(breakers.list().await.expect("the store answers"), []);
}

/// A check that does what it is told by a header, and hangs if that is nothing it knows.
struct Whimsical;

impl OperatorCheck for Whimsical {
    fn author<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Author, Denied>> {
        Box::pin(async move {
            match request.header("x-mood").unwrap_or_default() {
                "good" => Ok(Author::new("grace")),
                "nameless" => Ok(Author::new("")),
                "long-winded" => Ok(Author::new("g".repeat(129))),
                "strict" => Err(Denied::Forbidden),
                "lost" => Err(Denied::Unavailable("the directory at secret-host is down".into())),
                "bad" => panic!("a check that panics"),
                _ => std::future::pending().await,
            }
        })
    }

    fn challenge(&self) -> &str {
        "Mood realm=\"breakers\""
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_cannot_tell_lets_nobody_in() {
    let breakers = breakers();
    let app = mounted(&breakers, Whimsical);
    for (mood, expected) in [
        ("nameless", (503, "auth_unavailable")),
        ("long-winded", (503, "auth_unavailable")),
        ("strict", (403, "not_an_operator")),
        ("lost", (503, "auth_unavailable")),
        ("bad", (503, "auth_unavailable")),
        ("slow", (503, "auth_unavailable")),
    ] {
        let asked = Instant::now();
        let mut request = order("/payments/override", ORDER);
        request
            .headers_mut()
            .insert("x-mood", mood.parse().expect("a header value"));
        let (status, body, response) = ask(&app, request).await;
        assert_eq!(
            (status.as_u16(), body["error"].as_str()),
            (expected.0, Some(expected.1)),
            "{mood}"
        );
        assert_eq!(
            response.headers().contains_key(header::RETRY_AFTER),
            status.as_u16() == 503
        );
        assert!(!body.to_string().contains("secret-host"), "{body}");
        assert!(asked.elapsed() <= Duration::from_millis(5_001), "{mood}");
    }
    assert_eq!(held(&breakers, "payments").await, None);

    let mut request = order("/payments/override", ORDER);
    request
        .headers_mut()
        .insert("x-mood", "good".parse().expect("a header value"));
    assert_eq!(ask(&app, request).await.0, StatusCode::OK);
    assert_eq!(held(&breakers, "payments").await.expect("it is held").2, "grace");
}

#[tokio::test]
async fn a_function_is_a_check_too_and_may_panic() {
    let breakers = breakers();
    let app = mounted(&breakers, |request: &Request| match request.header("x-user") {
        Some("root") => panic!("nobody is root"),
        Some(user) => Ok(Author::new(user)),
        None => Err(Denied::Unknown),
    });
    for (user, expected) in [(None, 401), (Some("root"), 503), (Some("ada"), 200)] {
        let mut request = request(Method::GET, "");
        if let Some(user) = user {
            request
                .headers_mut()
                .insert("x-user", user.parse().expect("a header value"));
        }
        assert_eq!(ask(&app, request).await.0.as_u16(), expected, "{user:?}");
    }
}

/// A store that is not there, or that hangs.
#[derive(Debug)]
struct Gone {
    hangs: bool,
}

impl Gone {
    fn answer<T: Send + 'static>(&self) -> StoreFuture<'_, T> {
        Box::pin(async {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "no connection to secret-host",
            ))
        })
    }
}

impl Store for Gone {
    fn identity<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<String>> {
        self.answer()
    }

    fn flag<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, Option<bool>> {
        self.answer()
    }

    fn take<'a>(&'a self, _: &'a [Take<'a>], _: Instant) -> StoreFuture<'a, Vec<Taken>> {
        self.answer()
    }

    fn probe(&self, _: Probe, _: Instant) -> StoreFuture<'_, ()> {
        self.answer()
    }

    fn board(&self) -> Option<&dyn BreakerBoard> {
        Some(self)
    }
}

impl BreakerBoard for Gone {
    fn look<'a>(&'a self, _: &'a str, _: Option<Presence<'a>>, _: Instant) -> StoreFuture<'a, Board> {
        self.answer()
    }

    fn trip<'a>(&'a self, _: At<'a>, _: &'a Trip<'a>, _: Instant) -> StoreFuture<'a, Entry> {
        self.answer()
    }

    fn close<'a>(&'a self, _: At<'a>, _: Option<&'a str>, _: &'a str, _: Instant) -> StoreFuture<'a, Entry> {
        self.answer()
    }

    fn reopen<'a>(&'a self, _: At<'a>, _: &'a Trip<'a>, _: Instant) -> StoreFuture<'a, Entry> {
        self.answer()
    }

    fn lease<'a>(&'a self, _: At<'a>, _: &'a str, _: Duration, _: Instant) -> StoreFuture<'a, Leased> {
        self.answer()
    }

    fn yield_lease<'a>(&'a self, _: At<'a>, _: Instant) -> StoreFuture<'a, bool> {
        self.answer()
    }

    fn hold<'a>(&'a self, _: &'a str, _: &'a str, _: Option<&'a NewHold>, _: Instant) -> StoreFuture<'a, bool> {
        self.answer()
    }

    fn changes<'a>(&'a self, _: &'a str, _: Instant) -> StoreFuture<'a, BoxStream<'static, ()>> {
        self.answer()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_said_to_be_away() {
    for hangs in [false, true] {
        let breakers = SharedBreakers::over(Gone { hangs }, "payments-team").expect("it has a board");
        let app = with_token(&breakers);
        for request in [
            request(Method::GET, ""),
            request(Method::GET, "/payments"),
            order("/payments/override", ORDER),
            request(Method::DELETE, "/payments/override"),
        ] {
            let (status, body, response) = ask(&app, request).await;
            assert_eq!((status.as_u16(), &body["error"]), (503, &json!("breakers_unavailable")));
            assert_eq!(response.header(header::RETRY_AFTER), Some("5"));
            assert!(!body.to_string().contains("secret-host"), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_not_waited_for() {
    let breakers = breakers();
    let app = with_token(&breakers);
    let never = Body::from_bytes_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let answer = refused(&app, order("/payments/override", never)).await;
    assert_eq!((answer.0, &*answer.1), (408, "body_timeout"));
}

#[tokio::test]
async fn refusals_look_as_the_client_or_the_runtime_wants() {
    let breakers = breakers();
    let problem = |path| {
        let request = Request::builder()
            .uri_str(path)
            .header(header::ACCEPT, "application/problem+json");
        request.finish()
    };
    let (_, body, response) = ask(&with_token(&breakers), problem("/admin/breakers")).await;
    assert_eq!(response.content_type(), Some("application/problem+json"));
    assert_eq!(
        (&body["status"], &body["error"]),
        (&json!(401), &json!("not_an_operator"))
    );

    let builder = Resilience::builder().memory().error_body(ErrorBody::Json);
    let app = with_token(&breakers).with(builder.build().expect("valid"));
    let (_, _, response) = ask(&app, problem("/admin/breakers")).await;
    assert_eq!(response.content_type(), Some("application/json"));
}
