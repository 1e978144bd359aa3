//! Three instances over one Redis, whose machines disagree about the time by two hours.
#![cfg(target_os = "linux")]

use std::{fs, path::Path, thread, time::SystemTime};

use resilience_tests::RedisServer;

use crate::process::{Answer, Service};

/// Of Debian's `libfaketime`, which `tests/run` installs where it can. The dynamic linker fills in `$LIB`.
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketimeMT.so.1";

/// Whether clocks can be set wrong here: without the library this test is about three machines that agree.
fn clocks_can_differ() -> bool {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let there = |folder: &Path| folder.join("faketime/libfaketimeMT.so.1").exists();
    let differ = there(Path::new("/usr/lib64")) || folders.map(|folder| folder.path()).any(|folder| there(&folder));
    if !differ {
        eprintln!("libfaketime is not installed: the three clocks agree");
    }
    differ
}

/// Settings of a machine whose clock is this far off. What it measures of time that passes is right.
fn clock(offset: &str) -> [(&str, &str); 3] {
    [
        ("LD_PRELOAD", LIBRARY),
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

    let differ = clocks_can_differ();
    let services = [("+0h", 0), ("+1h", 1), ("-1h", -1)].map(|(offset, hours)| {
        let mut settings = vec![("REDIS_URL", &*url), ("LIMITS_FILE", limits)];
        if differ {
            settings.extend(clock(offset));
        }
        let service = Service::start(&settings);
        let expected = if differ { hours } else { 0 };
        assert_eq!(hours_off(&service.get("/healthz")), expected);
        service
    });

    let ask = |service: &Service| -> Vec<Answer> { (0..60).map(|_| service.get("/api/catalog")).collect() };
    let answers: Vec<_> = thread::scope(|scope| {
        let asking = services.each_ref().map(|service| scope.spawn(move || ask(service)));
        asking
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    // A busy machine may be too late for an answer: what passed uncounted says nothing.
    let (late, counted): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.fell_back());
    let passed = counted.iter().filter(|answer| answer.status == 200).count();
    assert!(passed == 100 || (passed < 100 && !late.is_empty()), "{passed}");
    let refused = counted.iter().filter(|answer| answer.status != 200);
    assert!(refused.clone().count() > 0 && refused.clone().all(|answer| answer.error() == "rate_limited"));
}
