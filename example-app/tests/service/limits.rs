//! Quotas that an operator changes while the service runs.

use std::fs;

use resilience_tests::RedisServer;

use crate::process::{Service, eventually, run};

/// What a command that must succeed has printed.
fn limits(arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let output = run(&[&["limits"], arguments].concat(), settings);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The limit that stands on an answer; `None` if the store was too late for one.
fn limit(service: &Service) -> Option<u64> {
    service.get("/api/catalog").header("x-ratelimit-limit")?.parse().ok()
}

#[test]
fn a_change_reaches_every_instance_and_outlives_them() {
    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str())];
    let services = [Service::start(&settings), Service::start(&settings)];
    eventually("the code's own limit holds", || limit(&services[0]) == Some(100));
    assert!(limits(&["list"], &settings).contains("catalog"), "it is listed");

    limits(&["set", "catalog", "50", "1m", "--on-outage", "fail_local"], &settings);
    for service in &services {
        eventually("the change is picked up", || limit(service) == Some(50));
    }
    let listed = limits(&["list"], &settings);
    assert!(listed.contains("50 in 60s") && listed.contains("store"), "{listed}");
    drop(services);

    let service = Service::start(&settings);
    eventually("the change is still there", || limit(&service) == Some(50));
    limits(&["clear", "catalog"], &settings);
    eventually("the code's own limit is back", || limit(&service) == Some(100));
}

#[test]
fn a_file_says_it_before_the_code_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let file = path.to_str().expect("UTF-8");
    fs::write(&path, "[limits.catalog]\nlimit = 7\nwindow = \"1h\"\n").expect("a file");
    let service = Service::start(&[("LIMITS_FILE", file)]);
    assert_eq!(limit(&service), Some(7));

    fs::write(&path, "[limits.catalog]\nlimit = 0\nwindow = \"1h\"\n").expect("a file");
    eventually("the mistake is in the log", || service.log().contains("limits.catalog"));
    assert_eq!(limit(&service), Some(7));
    fs::write(&path, "[limits.catalog]\nlimit = 9\nwindow = \"1h\"\n").expect("a file");
    eventually("the file is read again", || limit(&service) == Some(9));
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let file = path.to_str().expect("UTF-8");
    fs::write(&path, "[limits.catalog]\nlimit = 7\nwindow = \"1 fortnight\"\n").expect("a file");
    let refused = run(&[], &[("LIMITS_FILE", file)]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    for part in ["LIMITS_FILE", "limits.toml", "3", "window"] {
        assert!(error.contains(part), "{part}: {error}");
    }

    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str())];
    let unknown = run(&["limits", "set", "catalogue", "50", "1m"], &settings);
    let error = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && error.contains("catalog"), "{error}");
    for wrong in [
        &["limits", "set", "catalog", "0", "1m"][..],
        &["limits", "set", "catalog", "5", "1"],
        &[
            "limits",
            "set",
            "catalog",
            "5",
            "1m",
            "--burst",
            "6",
            "--algorithm",
            "token_bucket",
        ],
    ] {
        assert!(!run(wrong, &settings).status.success(), "{wrong:?}");
    }
    assert_eq!(redis.cli(&["KEYS", "*limits*"]), "");
}
