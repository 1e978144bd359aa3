//! An operator who looks for one client's keys in Redis.

use resilience_tests::{PATIENCE, RedisServer};

use crate::process::{KEY, Service, eventually, run, succeed};

/// The patterns that the command prints for a client.
fn patterns(client: &[&str], settings: &[(&str, &str)]) -> Vec<String> {
    let printed = succeed(&[&["redis-keys"], client].concat(), settings);
    printed.lines().map(str::to_owned).collect()
}

#[test]
fn printed_patterns_find_the_keys_of_a_client() {
    let redis = RedisServer::start();
    let url = redis.url();
    for secret in ["", "a secret of the service"] {
        redis.cli(&["FLUSHALL"]);
        let settings = [("REDIS_URL", url.as_str()), ("KEY_SECRET", secret)];
        succeed(&["key", "add", KEY, "user-42"], &settings);
        let service = Service::start(&settings);
        let found = |pattern: &str| redis.cli(&["KEYS", pattern]).lines().count();
        for (client, expected) in [
            (&["user", "user-42"][..], [1, 0]),
            (&["account", "GRACE"], [0, 1]),
            (&["ip", "127.0.0.1"], [2, 1]),
            (&["user", "ada"], [0, 0]),
            (&["header", "x-tenant", "acme"], [0, 0]),
        ] {
            let patterns = patterns(client, &settings);
            assert_eq!(patterns.len(), 2, "{patterns:?}");
            // A late Redis lets a request pass uncounted: ask until all three kinds have been counted.
            let mut counts = [0, 0];
            eventually("the keys are there", || {
                service.send("/api/search?q=a", Some(("x-api-key", KEY)));
                service.checkout(KEY);
                service.login("grace", "wrong");
                counts = [found(&patterns[0]), found(&patterns[1])];
                counts == expected
            });
            assert_eq!(counts, expected, "{client:?} with {secret:?} within {PATIENCE:?}");
        }
        let clear = ["user-42", "grace", "127.0.0.1"];
        let keys = redis.cli(&["KEYS", "*"]);
        let hidden = if secret.is_empty() { &clear[..2] } else { &clear };
        assert!(!hidden.iter().any(|text| keys.contains(text)), "{keys}");
    }
}

#[test]
fn patterns_need_no_redis() {
    let hash = "user:#fdee430d40bd57deeac186cd9790033d";
    assert_eq!(
        patterns(&["user", "ada"], &[]),
        [format!("rl:{{{hash}}}:*"), format!("lock:{{{hash}}}:*")]
    );
    assert_eq!(patterns(&["ip", "2001:db8::1"], &[])[0], "rl:{ip:2001:db8::/64}:*");
    let header = &patterns(&["header", "X-*", "acme"], &[])[0];
    assert!(header.starts_with(r"rl:{header:x-\*:#"), "{header}");
    let secret = [("KEY_SECRET", "0123456789abcdef")];
    let hidden = &patterns(&["header", "x-tenant", "acme"], &secret)[0];
    assert!(hidden.starts_with("rl:{header:x-tenant:~"), "{hidden}");
}

#[test]
fn a_short_secret_is_named_and_not_shown() {
    let secret = ("KEY_SECRET", "hunter2");
    for (command, settings) in [
        (&["redis-keys", "user", "ada"][..], &[secret][..]),
        (&["unlock", "ada"], &[secret, ("REDIS_URL", "redis://127.0.0.1:1")]),
    ] {
        let output = run(command, settings);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("error: KEY_SECRET: "), "{error}");
        assert!(error.contains("at least 16") && !error.contains("hunter2"), "{error}");
    }
}
