//! Behind a proxy: who is calling.

use crate::process::Service;

/// What is left of the quota of 100 after each of these requests.
fn remaining(service: &Service, forwarded_for: &[&str]) -> Vec<u64> {
    let answers = forwarded_for.iter().map(|value| service.catalog_for(value));
    answers.map(|answer| answer.number("x-ratelimit-remaining")).collect()
}

#[test]
fn nobody_is_believed_unless_told_to() {
    for settings in [&[][..], &[("TRUSTED_PROXIES", "10.0.0.0/8")]] {
        let service = Service::start(settings);
        assert_eq!(remaining(&service, &["203.0.113.7", "203.0.113.8"]), [99, 98]);
    }
}

#[test]
fn a_trusted_proxy_names_its_clients() {
    let service = Service::start(&[("TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1,2001:db8::/32")]);
    let forwarded_for = [
        "203.0.113.7",
        "192.0.2.1, 203.0.113.7:80",
        "203.0.113.7, 10.0.0.1",
        "203.0.113.8",
    ];
    assert_eq!(remaining(&service, &forwarded_for), [99, 98, 97, 99]);
}
