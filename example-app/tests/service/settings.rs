//! Settings that make no sense: an error that names them, exit code 2, and no secrets.

use std::net::TcpListener;

use crate::process::{Service, run};

#[test]
fn what_makes_no_sense_is_named_and_ends_with_2() {
    for (name, value) in [
        ("PORT", "http"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("HOST", "localhost"),
        ("BREAKERS", "none"),
        ("API_KEYS", "md5"),
        ("TRUSTED_PROXIES", "localhost"),
        ("TRUSTED_PROXIES", "10.0.0.0/33"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("TRUSTED_PROXIES", "10.0.0.0/8,"),
        ("TRUSTED_PROXIES", "10.0.0.0/8 192.168.0.0/16"),
        ("TRUSTED_PROXIES", "0.0.0.0/0"),
        ("REDIS_URL", "localhost:6379"),
        ("PAYMENTS_URL", "localhost:4000"),
        // They need another setting besides.
        ("SHARE_BREAKERS", "payments-team"),
        ("ADMIN_TOKEN", "3f1c9a04e7b25d68"),
    ] {
        let output = run(&[], &[("PORT", "0"), (name, value)]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {error}");
        assert!(
            error.starts_with(&format!("error: {name}: ")),
            "{name}={value}: {error}"
        );
        assert!(output.stdout.is_empty(), "{name}={value}");
    }
}

#[test]
fn a_malformed_url_does_not_show_its_password() {
    for url in [
        "redis://:hunter2/@localhost",
        "http://user:hunter2@localhost",
        "redis://user:hunter2@localhost/first",
        "rediss://user:hunter2@localhost:port",
    ] {
        for arguments in [&[][..], &["key", "add", "letmein", "user-42"], &["policies"]] {
            let output = run(arguments, &[("PORT", "0"), ("REDIS_URL", url), ("RUST_LOG", "trace")]);
            let shown = format!("{output:?}");
            assert_eq!(output.status.code(), Some(2), "{url}: {shown}");
            assert!(shown.contains("error: REDIS_URL: "), "{url}: {shown}");
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }
}

#[test]
fn an_unreachable_redis_does_not_show_its_password_either() {
    let settings = [("REDIS_URL", "redis://user:hunter2@127.0.0.1:1"), ("RUST_LOG", "trace")];
    let service = Service::start(&settings);
    service.get("/readyz");
    assert!(service.log().contains("127.0.0.1:1"));
    assert!(!service.log().contains("hunter2"));
    let output = run(&["key", "add", "letmein", "user-42"], &settings);
    assert_eq!(output.status.code(), Some(1));
    assert!(!format!("{output:?}").contains("hunter2"));
}

#[test]
fn empty_settings_count_as_unset() {
    let settings = ["HOST", "REDIS_URL", "BREAKERS", "API_KEYS", "TRUSTED_PROXIES"].map(|name| (name, ""));
    assert_eq!(Service::start(&settings).checkout("letmein").status, 200);
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = run(&[], &[("PORT", &address.port().to_string())]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
}
