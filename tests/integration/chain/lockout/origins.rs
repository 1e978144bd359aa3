//! Successes that clear nothing of others: an account of one's own buys no guesses.

use poem::{
    EndpointExt, Route,
    endpoint::BoxEndpoint,
    http::uri::Scheme,
    web::{LocalAddr, RemoteAddr},
};
use resilience::Resilience;

use super::*;

/// A service that compares names exactly. `Ada`, `ada` with an invisible character at its end, and `mallory` belong to the
/// attacker.
fn verify(body: &str) -> StatusCode {
    let sent: serde_json::Value = serde_json::from_str(body).expect("JSON");
    match (&sent["username"], &sent["password"]) {
        (name, password) if name == "ada" && password == "right" => StatusCode::OK,
        (name, password) if (name == "Ada" || name == "ada\u{200d}") && password == "own" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

#[resilient(lockout(5, "15m", key = account("json:/username"), name = "accounts"))]
#[handler]
async fn login(body: String) -> StatusCode {
    verify(&body)
}

/// Answers 201 to all. It shares the tallies of the login, so that it cannot be used to guess.
#[resilient(lockout(5, "15m", key = account("json:/username"), name = "accounts"))]
#[handler]
async fn register() -> StatusCode {
    StatusCode::CREATED
}

/// Answers 2xx to a session that is still good.
#[resilient(lockout(5, "15m", key = account("json:/username"), name = "accounts"))]
#[handler]
async fn refresh() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn service() -> BoxEndpoint<'static, Response> {
    let routes = Route::new()
        .at("/login", poem::post(login))
        .at("/register", poem::post(register))
        .at("/session", poem::post(refresh));
    routes
        .with(Resilience::builder().memory().build().unwrap())
        .map_to_response()
        .boxed()
}

fn to(path: &str, address: &str, username: &str, password: &str) -> Request {
    let address: std::net::SocketAddr = format!("{address}:4711").parse().unwrap();
    let body = serde_json::json!({ "username": username, "password": password }).to_string();
    let (parts, ()) = poem::http::Request::post(path).body(()).unwrap().into_parts();
    let parts = (parts, LocalAddr::default(), RemoteAddr(address.into()), Scheme::HTTP);
    Request::from_parts(parts.into(), body.into())
}

const ATTACKER: &str = "203.0.113.7";
const VICTIM: &str = "198.51.100.1";

/// Of 240 guesses at `ada`, four and then a success of this kind, how many are checked.
async fn guesses_checked(success: impl Fn() -> Request) -> usize {
    let app = service();
    let mut checked = 0;
    for _ in 0..60 {
        for _ in 0..4 {
            let guess = ask(&app, to("/login", ATTACKER, "ada", "guess")).await;
            checked += usize::from(guess.status == 401);
        }
        let success = ask(&app, success()).await.status;
        assert!(success.is_success() || checked >= 5, "{success}");
    }
    checked
}

#[tokio::test(start_paused = true)]
async fn an_account_of_ones_own_buys_no_guesses() {
    for own in ["Ada", "ada\u{200d}"] {
        assert_eq!(
            guesses_checked(|| to("/login", ATTACKER, own, "own")).await,
            5,
            "{own:?}"
        );
    }
}

/// A mail client that logs in each minute.
#[tokio::test(start_paused = true)]
async fn a_success_from_another_address_gives_an_attacker_nothing_back() {
    assert_eq!(guesses_checked(|| to("/login", VICTIM, "ada", "right")).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_success_of_another_route_of_the_same_name_gives_nothing_back() {
    for path in ["/register", "/session"] {
        assert_eq!(guesses_checked(|| to(path, ATTACKER, "ada", "")).await, 5, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_mistypes_and_gets_in_from_the_same_place_is_cleared() {
    let app = service();
    for round in 0..20 {
        for _ in 0..4 {
            let mistyped = ask(&app, to("/login", VICTIM, "ada", "rihgt")).await;
            assert_eq!(mistyped.status, 401, "{round}");
        }
        let right = ask(&app, to("/login", VICTIM, "ada", "right")).await;
        assert_eq!(right.status, 200, "{round}");
    }
}

/// A second secret of a verified user, asked for from two addresses.
#[resilient(auth = "fail_closed", lockout(2, "15m", key = user))]
#[handler]
async fn pin(body: String) -> poem::Result<Response> {
    answer(&body)
}

#[tokio::test(start_paused = true)]
async fn a_users_success_clears_its_own_address_only() {
    let store = resilience::store::MemoryStore::new().with_api_key("letmein", "user-42");
    let app = app(pin, Resilience::builder().store(store));
    let ask = async |address: &str, password: &str| {
        let mut request = to("/", address, "ada", password);
        request.headers_mut().insert("x-api-key", "letmein".parse().unwrap());
        super::ask(&app, request).await.status.as_u16()
    };
    for _ in 0..3 {
        assert_eq!(ask(VICTIM, "401").await, 401);
        assert_eq!(ask(VICTIM, "200").await, 200);
    }
    assert_eq!(ask(ATTACKER, "401").await, 401);
    assert_eq!(ask(VICTIM, "200").await, 200);
    assert_eq!(ask(ATTACKER, "401").await, 401);
    assert_eq!(ask(ATTACKER, "401").await, 429);
}
