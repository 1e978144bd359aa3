//! What lies in Redis, and what must not.

use bb8_redis::{RedisConnectionManager, bb8};
use resilience::store::{ApiKeys, KeyLayout, Probe, RedisStore, Store, StoreAdmin, StoreErrorKind};
use resilience_tests::RedisServer;

use super::{connect, connected, quota, soon, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_lie_where_the_layout_says() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    let hash = "apikey-sha256:1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";
    store.add_api_key("letmein", "user-42").await.unwrap();
    store.set_flag("checkout", true).await.unwrap();
    take(&store, &quota(10)).await.unwrap();
    let mut keys: Vec<String> = server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    keys.sort_unstable();
    assert_eq!(keys, [hash, "flag:checkout", "rl:{client}:q"]);
    assert_eq!(server.cli(&["GET", hash]), "user-42");
    // What an operator writes is for good.
    assert_eq!(server.cli(&["TTL", hash]), "-1");
    assert_eq!(server.cli(&["TTL", "flag:checkout"]), "-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_keys_and_a_prefix_are_a_matter_of_settings() {
    let server = RedisServer::start();
    server.cli(&["SET", "shop:apikey:letmein", "user-42"]);
    server.cli(&["SET", "shop:flag:checkout", "on"]);
    let built = RedisStore::builder(server.url())
        .api_keys(ApiKeys::plain())
        .key_prefix("shop:");
    let built = built.build().unwrap();
    connected(&built).await;
    let pool = bb8::Pool::builder()
        .build(RedisConnectionManager::new(server.url()).unwrap())
        .await
        .unwrap();
    let layout = KeyLayout::new()
        .with_api_keys(ApiKeys::plain())
        .with_prefix("shop:")
        .unwrap();
    for store in [built, RedisStore::from_pool(pool).with_layout(layout)] {
        assert_eq!(
            store.identity("letmein", soon()).await.unwrap().as_deref(),
            Some("user-42")
        );
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_and_a_socket_are_a_matter_of_the_url() {
    let server = RedisServer::start_with(&["--unixsocket", "redis.sock"]);
    server.cli_at(&format!("{}/3", server.url()), &["SET", "flag:checkout", "on"]);
    let socket = server.directory().join("redis.sock");
    for url in [
        format!("{}/3", server.url()),
        format!("unix://{}?db=3", socket.display()),
    ] {
        let store = connect(url).await;
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_are_read_in_all_common_words() {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    for (word, on) in [
        ("1", true),
        ("1\n", true),
        ("true", true),
        ("ON", true),
        ("on ", true),
        ("Yes", true),
        ("enabled\r\n", true),
        ("\0on\0", true),
        ("0", false),
        ("False", false),
        ("off", false),
        ("\u{a0}no\t", false),
        ("disable", false),
    ] {
        server.cli(&["SET", "flag:checkout", word]);
        assert_eq!(store.flag("checkout", soon()).await.unwrap(), Some(on), "{word:?}");
    }
    for word in ["", "2", "o n", "maybe"] {
        server.cli(&["SET", "flag:checkout", word]);
        let error = store.flag("checkout", soon()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Answered, "{word}");
        assert!(error.is_unreadable(), "{word}");
    }
    server.cli(&["EVAL", r"return redis.call('SET', 'flag:checkout', '\255on')", "0"]);
    assert!(store.flag("checkout", soon()).await.unwrap_err().is_unreadable());
    server.cli(&["DEL", "flag:checkout"]);
    server.cli(&["RPUSH", "flag:checkout", "a list"]);
    assert!(store.flag("checkout", soon()).await.unwrap_err().is_unreadable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_should_have_written_is_an_answer_and_no_outage() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .api_keys(ApiKeys::plain())
        .build()
        .unwrap();
    connected(&store).await;
    for key in ["apikey:letmein", "flag:checkout", "rl:{client}:q"] {
        server.cli(&["RPUSH", key, "a list"]);
    }
    server.cli(&["SET", "apikey:empty", ""]);
    server.cli(&["EVAL", r"return redis.call('SET', 'apikey:binary', '\255\254')", "0"]);
    let errors = [
        store.identity("letmein", soon()).await.unwrap_err(),
        store.identity("empty", soon()).await.unwrap_err(),
        store.identity("binary", soon()).await.unwrap_err(),
        store.flag("checkout", soon()).await.unwrap_err(),
        take(&store, &quota(10)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
    }
    assert_eq!(store.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_forbidden_is_an_answer_and_no_outage() {
    let server = RedisServer::start();
    server.cli(&[
        "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get", "+evalsha", "+eval", "+select", "+hello",
    ]);
    let store = connect(format!("redis://reader:secret@127.0.0.1:{}", server.port())).await;
    assert_eq!(store.flag("checkout", soon()).await.unwrap(), None);
    let error = take(&store, &quota(10)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Answered, "{error}");
    // Nor may it ask for the server's role, which must not keep a breaker open.
    store.probe(Probe::Read, soon()).await.unwrap();
}
