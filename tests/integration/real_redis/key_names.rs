//! No key of the database names a client, except by its address where there is no secret.

use poem::{Body, Endpoint, EndpointExt, Request, handler, http::StatusCode};
use resilience::{
    client::ClientKey,
    resilient,
    store::{KeyLayout, RedisStore, StoreAdmin},
};
use resilience_tests::{RedisServer, request_from};

use super::{ask, connected, over};

const CREDENTIAL: &str = "sk-live-0123456789";
const USER: &str = "ada@example.com";
const ACCOUNT: &str = "grace@example.com";
const ADDRESS: &str = "203.0.113.7:4711";

fn device(request: &Request) -> Option<String> {
    request.header("x-device").map(str::to_owned)
}

#[resilient(
    auth = "fail_closed",
    rate_limit(1000, 60, key = header("x-api-key")),
    rate_limit(1000, 60, key = header("authorization")),
    rate_limit(1000, 60, key = user),
    rate_limit(1000, 60, key = device),
    rate_limit(1000, 60, key = ip),
    rate_limit(1000, 60, key = global)
)]
#[handler]
async fn read() {}

#[resilient(auth = "fail_closed", lockout(50, 60, key = user), lockout(50, 60, key = device))]
#[handler]
async fn confirm() -> StatusCode {
    StatusCode::FORBIDDEN
}

#[resilient(lockout(50, 60, key = account("json:/username")), lockout(50, 60, key = ip))]
#[handler]
async fn login() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

fn request() -> Request {
    request_from(
        poem::Addr::SocketAddr(ADDRESS.parse().expect("an address")),
        &[
            ("x-api-key", CREDENTIAL),
            ("authorization", "Bearer-0123456789"),
            ("x-device", "device-17"),
        ],
    )
}

/// Asks each handler once, and returns the sorted names of the keys that were written for clients.
async fn names_after_requests(server: &RedisServer, layout: KeyLayout) -> Vec<String> {
    server.cli(&["FLUSHALL"]);
    let store = RedisStore::new(server.url()).unwrap().with_layout(layout);
    connected(&store).await;
    store.add_api_key(CREDENTIAL, USER).await.unwrap();
    let resilience = over(store).build().unwrap();
    assert_eq!(sent(&read.with(resilience.clone()), request()).await, 200);
    assert_eq!(sent(&confirm.with(resilience.clone()), request()).await, 403);
    let mut attempt = request();
    attempt.set_body(Body::from(format!(r#"{{"username":"{ACCOUNT}"}}"#)));
    let json = "application/json".parse().expect("a header value");
    attempt.headers_mut().insert("content-type", json);
    assert_eq!(sent(&login.with(resilience), attempt).await, 401);
    let keys = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<_> = keys
        .lines()
        .filter(|key| !key.starts_with("apikey-sha256:") && *key != "probe")
        .map(str::to_owned)
        .collect();
    keys.sort_unstable();
    keys
}

async fn sent(app: &impl Endpoint, request: Request) -> u16 {
    ask(app, request).await.0
}

fn assert_hidden(keys: &[String], clear: &[&str]) {
    // Six counts and four tallies.
    assert_eq!(keys.len(), 10, "{keys:#?}");
    for key in keys {
        for text in clear {
            assert!(!key.contains(text), "{key} holds {text}");
        }
    }
}

const VALUES: [&str; 5] = [CREDENTIAL, "Bearer", "device-17", "ada@", "grace"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_clients_are_hashed_without_a_secret() {
    let server = RedisServer::start();
    let keys = names_after_requests(&server, KeyLayout::new()).await;
    assert_hidden(&keys, &VALUES);
    assert_eq!(keys.iter().filter(|key| key.contains("{ip:203.0.113.7}:")).count(), 2);
    assert_eq!(keys.iter().filter(|key| key.contains(":#")).count(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_hides_addresses_too_and_makes_keys_of_its_own() {
    let server = RedisServer::start();
    let layout = |secret: &str| KeyLayout::new().with_key_secret(secret).unwrap();
    let clear = [&VALUES[..], &["203.0.113.7", "#"]].concat();
    let one = names_after_requests(&server, layout("0123456789abcdef")).await;
    assert_hidden(&one, &clear);
    assert_eq!(one.iter().filter(|key| key.contains(":~")).count(), 9, "{one:#?}");
    assert_eq!(one, names_after_requests(&server, layout("0123456789abcdef")).await);

    let two = names_after_requests(&server, layout("another 16 bytes")).await;
    let shared: Vec<_> = one.iter().filter(|key| two.contains(key)).collect();
    assert!(
        shared.len() == 1 && shared[0].starts_with("rl:{global}:"),
        "{shared:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_of_the_layout_find_the_keys_of_one_client() {
    let server = RedisServer::start();
    for layout in [
        KeyLayout::new().with_prefix(r"shop[1]*?\:").unwrap(),
        KeyLayout::new().with_key_secret("0123456789abcdef").unwrap(),
    ] {
        names_after_requests(&server, layout.clone()).await;
        let found = |pattern: String| server.cli(&["KEYS", &pattern]).lines().count();
        let user = ClientKey::user(USER);
        let account = ClientKey::account("GRACE@example.com").unwrap();
        let address = ClientKey::ip("203.0.113.7".parse().unwrap(), 64);
        for (key, counts, tallies) in [(&user, 1, 1), (&account, 0, 1), (&address, 1, 1)] {
            assert_eq!(found(layout.count_pattern(key.as_str())), counts, "{key:?}");
            assert_eq!(found(layout.tally_pattern(key.as_str())), tallies, "{key:?}");
        }
        let stranger = ClientKey::user("eve");
        assert_eq!(found(layout.count_pattern(stranger.as_str())), 0);
    }
}
