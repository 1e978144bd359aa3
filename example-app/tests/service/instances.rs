//! Three instances over one Redis, whose machines disagree about the time by two hours.
#![cfg(target_os = "linux")]

use std::{fs, thread, time::SystemTime};

use resilience_tests::RedisServer;

use crate::process::{Answer, Service};

/// Settings of a machine whose clock is this far off. What it measures of time that passes is right.
///
/// The dynamic linker fills in `$LIB`; `tests/run` installs the library.
fn clock(offset: &str) -> [(&str, &str); 3] {
    [
        ("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1"),
        ("FAKETIME", offset),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]
}

/// How far an answer's `Date` is from now, in whole hours.
fn hours_off(answer: &Answer) -> i64 {
    let date = httpdate::parse_http_date(answer.header("date").expect("it has one")).expect("a date");
    let seconds = match date.duration_since(SystemTime::now()) {
        Ok(ahead) => ahead.as_secs_f64(),
        Err(behind) => -behind.duration().as_secs_f64(),
    };
    (seconds / 3600.0).round() as i64
}

#[test]
fn clocks_that_are_wrong_let_nobody_have_more() {
    let redis = RedisServer::start();
    let url = redis.url();
    // No window of that length ends in mid-test.
    let folder = tempfile::tempdir().expect("a folder");
    let limits = folder.path().join("limits.toml");
    fs::write(&limits, "[limits.catalog]\nlimit = 100\nwindow = \"366d\"\n").expect("a file");
    let limits = limits.to_str().expect("UTF-8");

    let services = ["+0h", "+1h", "-1h"].map(|offset| {
        let settings = [&clock(offset)[..], &[("REDIS_URL", &url), ("LIMITS_FILE", limits)]].concat();
        (offset, Service::start(&settings))
    });
    for ((_, service), hours) in services.iter().zip([0, 1, -1]) {
        assert_eq!(hours_off(&service.get("/healthz")), hours, "is libfaketime installed?");
    }

    let ask = |service: &Service| -> Vec<Answer> { (0..60).map(|_| service.get("/api/catalog")).collect() };
    let answers: Vec<_> = thread::scope(|scope| {
        let asking = services
            .each_ref()
            .map(|(_, service)| scope.spawn(move || ask(service)));
        asking
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(answers.iter().all(|answer| !answer.fell_back()));
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(passed, 100);
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 200 || answer.error() == "rate_limited")
    );
}
