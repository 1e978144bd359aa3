//! Whose bucket a request counts in behind proxies, and who is not counted at all.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::net,
};

use poem::{Addr, Endpoint, EndpointExt, Request, handler};
use resilience::{
    BuildError, Builder, ProxyHeader, Resilience,
    client::Network,
    resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};
use resilience_tests::request_from;

use super::{Answered, app, ask, over};

#[resilient(rate_limit(100, 60))]
#[handler]
async fn by_address() {}

#[resilient(rate_limit(100, 60), rate_limit(50, 60, key = global))]
#[handler]
async fn by_address_and_everybody() {}

#[resilient(rate_limit(100, 60, on_outage = "fail_closed"))]
#[handler]
async fn closed() {}

const FORWARDED_FOR: &str = "x-forwarded-for";

fn behind_proxies() -> Builder {
    Resilience::builder()
        .memory()
        .trusted_proxies(["10.0.0.0/24", "2001:db8:f::/48"])
}

/// A request over a connection from this address, with these headers.
fn from(address: &str, headers: &[(&'static str, &str)]) -> Request {
    let address: IpAddr = address.parse().expect("an address");
    request_from(SocketAddr::new(address, 4711), headers)
}

/// A request over a unix socket, with these headers.
fn over_unix_socket(headers: &[(&'static str, &str)]) -> Request {
    let peer = net::SocketAddr::from_pathname("/run/proxy.sock").expect("a path");
    request_from(Addr::unix(peer.into()), headers)
}

/// How many requests the client of this one has made by now, this one included.
async fn count(app: &impl Endpoint, request: Request) -> u32 {
    100 - remaining(&ask(app, request).await).expect("it is counted")
}

fn remaining(answered: &Answered) -> Option<u32> {
    let remaining = answered.header("x-ratelimit-remaining")?;
    Some(remaining.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
async fn clients_behind_trusted_proxies_are_told_apart() {
    let app = app(by_address, behind_proxies());
    for (peer, forwarded_for, expected) in [
        ("10.0.0.1", "203.0.113.7", 1),
        ("10.0.0.2", "203.0.113.7:4711", 2),
        ("10.0.0.1", "192.0.2.1, 203.0.113.7", 3),
        ("::ffff:10.0.0.1", "::ffff:203.0.113.7", 4),
        ("2001:db8:f::1", "unknown, 203.0.113.7, [2001:db8:f::2]:80, 10.0.0.2", 5),
        ("203.0.113.7", "192.0.2.1", 6),
        ("10.0.0.1", "203.0.113.8", 1),
        ("10.0.0.1", "2001:db8:1:1::1", 1),
        ("10.0.0.1", "\"[2001:db8:1:1::2%eth0]:4711\"", 2),
        ("10.0.0.1", "2001:db8:1:2::1", 1),
    ] {
        let request = from(peer, &[(FORWARDED_FOR, forwarded_for)]);
        assert_eq!(count(&app, request).await, expected, "{peer}, {forwarded_for}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_prepends_buys_no_fresh_bucket() {
    let app = app(by_address, behind_proxies());
    let long = "1.1.1.1, ".repeat(1_000);
    let pretended = [
        "192.0.2.1",
        "10.0.0.9",
        "10.0.0.9, 10.0.0.9",
        "unknown",
        "\"",
        "\\",
        ",,,",
        "",
        &long,
    ];
    for (before, pretended) in (0..).zip(pretended) {
        let appended = format!("{pretended}, 203.0.113.7");
        let appended = from("10.0.0.1", &[(FORWARDED_FOR, &appended)]);
        assert_eq!(count(&app, appended).await, 3 * before + 1, "{pretended}");
        let own_line = from(
            "10.0.0.1",
            &[(FORWARDED_FOR, pretended), (FORWARDED_FOR, "203.0.113.7")],
        );
        assert_eq!(count(&app, own_line).await, 3 * before + 2, "{pretended}");
        let direct = from("203.0.113.7", &[(FORWARDED_FOR, pretended)]);
        assert_eq!(count(&app, direct).await, 3 * before + 3, "{pretended}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_header_is_read_and_the_other_never() {
    let both = [(FORWARDED_FOR, "203.0.113.7"), ("forwarded", "for=203.0.113.8")];
    let x_forwarded_for = app(by_address, behind_proxies());
    let forwarded = app(by_address, behind_proxies().proxy_header(ProxyHeader::Forwarded));
    for (app, own, other) in [
        (&x_forwarded_for, "203.0.113.7", "203.0.113.8"),
        (&forwarded, "203.0.113.8", "203.0.113.7"),
    ] {
        assert_eq!(count(app, from("10.0.0.1", &both)).await, 1);
        assert_eq!(count(app, from(own, &[])).await, 2);
        assert_eq!(count(app, from(other, &[])).await, 1);
    }

    // Without the header that is read, the proxy itself is calling, whatever the other one says.
    assert_eq!(count(&forwarded, from("10.0.0.1", &both[..1])).await, 1);
    assert_eq!(count(&forwarded, from("10.0.0.1", &[])).await, 2);
}

#[tokio::test(start_paused = true)]
async fn forwarded_is_read_as_its_rfc_says() {
    let app = app(by_address, behind_proxies().proxy_header(ProxyHeader::Forwarded));
    for (forwarded, expected) in [
        ("for=203.0.113.7", 1),
        ("For=\"203.0.113.7:4711\";proto=https;host=\"a,b\"", 2),
        ("for=192.0.2.1, for=203.0.113.7;by=10.0.0.2, for=10.0.0.2", 3),
        ("for=\", for=203.0.113.7", 4),
        ("for=\"[2001:db8:1:1::1]:4711\"", 1),
        ("for=_hidden, for=\"[2001:db8:1:1::2]\", for=\"[2001:db8:f::2]:_p\"", 2),
    ] {
        let request = from("10.0.0.1", &[("forwarded", forwarded)]);
        assert_eq!(count(&app, request).await, expected, "{forwarded}");
    }
}

#[tokio::test(start_paused = true)]
async fn whom_nobody_names_counts_as_the_last_proxy_known() {
    let app = app(by_address, behind_proxies());
    let mut expected = 0;
    let padded = format!("{:>600}", "203.0.113.7");
    let endless = format!("203.0.113.7{}", ", 10.0.0.2".repeat(40));
    for forwarded_for in ["unknown, 10.0.0.2", "203.0.113.7, _x, 10.0.0.2", "10.0.0.2", &endless] {
        expected += 1;
        let request = from("10.0.0.1", &[(FORWARDED_FOR, forwarded_for)]);
        assert_eq!(count(&app, request).await, expected, "{forwarded_for}");
    }
    assert_eq!(count(&app, from("10.0.0.1", &[(FORWARDED_FOR, &padded)])).await, 1);
    assert_eq!(count(&app, from("10.0.0.1", &[])).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_unix_socket_is_a_proxy_only_if_it_is_trusted() {
    let headers = [(FORWARDED_FOR, "192.0.2.1, 203.0.113.7")];
    let distrusted = app(by_address, behind_proxies());
    assert_eq!(count(&distrusted, over_unix_socket(&headers)).await, 1);
    assert_eq!(count(&distrusted, over_unix_socket(&[])).await, 2);
    assert_eq!(count(&distrusted, Request::default()).await, 3, "no address either");

    let trusted = app(by_address, Resilience::builder().memory().trust_unix_sockets(true));
    assert_eq!(count(&trusted, over_unix_socket(&headers)).await, 1);
    assert_eq!(count(&trusted, from("203.0.113.7", &[])).await, 2);
    assert_eq!(count(&trusted, over_unix_socket(&[])).await, 1);
    assert_eq!(count(&trusted, Request::default()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn exempt_clients_are_counted_by_no_quota_by_address() {
    let exempt = ["198.51.100.0/24", "2001:db8:c::/48", "10.0.0.1"];
    let app = app(by_address_and_everybody, behind_proxies().exempt(exempt));
    let with = |forwarded_for| [(FORWARDED_FOR, forwarded_for)];
    let exempt = [
        from("198.51.100.20", &[]),
        from("::ffff:198.51.100.20", &with("203.0.113.7")),
        from("10.0.0.1", &with("203.0.113.7, 198.51.100.20:80")),
        from("10.0.0.2", &with("2001:db8:c::1")),
        // A health check of the proxy's own.
        from("10.0.0.1", &[]),
    ];
    for request in exempt {
        let answered = ask(&app, request).await;
        assert_eq!(
            answered.header("ratelimit-policy").as_deref(),
            Some("\"default-2\";q=50;w=60")
        );
    }
    for counted in [
        from("203.0.113.7", &with("198.51.100.20")),
        from("10.0.0.2", &with("198.51.100.20, 203.0.113.7")),
        from("10.0.0.1", &with("unknown")),
        from("10.0.0.1", &with("198.51.100.20.")),
    ] {
        let policies = ask(&app, counted)
            .await
            .header("ratelimit-policy")
            .expect("it is counted");
        assert!(policies.contains("q=100"), "{policies}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_an_exempt_client() {
    let store = ScriptedStore::new().on_take(Answer::error(StoreErrorKind::Unavailable));
    let app = app(closed, over(&store).exempt(["198.51.100.20"]));
    let answered = ask(&app, from("198.51.100.20", &[])).await;
    assert_eq!((answered.status.as_u16(), answered.lines()), (200, Vec::new()));
    assert_eq!(store.calls().take, 0);
    assert_eq!(ask(&app, from("198.51.100.21", &[])).await.status, 503);
}

#[tokio::test]
async fn networks_may_be_text_addresses_or_networks() {
    let builder = || Resilience::builder().memory();
    let address: IpAddr = "10.0.0.1".parse().expect("an address");
    let network: Network = "10.0.0.0/24".parse().expect("a network");
    let built = [
        builder().trusted_proxies(["10.0.0.0/24"]),
        builder().trusted_proxies(vec!["10.0.0.0/24".to_owned()]),
        builder().trusted_proxies(Some("10.0.0.0/24".parse::<ipnet::IpNet>().expect("a network"))),
        builder().trusted_proxies([address]),
        builder().trusted_proxies([network]),
    ];
    for builder in built {
        let app = by_address.with(builder.build().expect("valid settings"));
        assert_eq!(
            count(&app, from("10.0.0.1", &[(FORWARDED_FOR, "203.0.113.7")])).await,
            1
        );
        assert_eq!(count(&app, from("203.0.113.7", &[])).await, 2);
    }
}

#[tokio::test]
async fn what_is_no_network_is_an_error_that_names_its_option() {
    let builder = || Resilience::builder().memory();
    for wrong in ["", "10.0.0.0/33", "10.0.0.1/8", "localhost"] {
        for (option, builder) in [
            ("trusted_proxies", builder().trusted_proxies(["10.0.0.0/8", wrong])),
            ("exempt", builder().exempt([wrong])),
        ] {
            let error = builder.build().expect_err(wrong);
            assert!(matches!(error, BuildError::Network { option: named, .. } if named == option));
            let error = error.to_string();
            assert!(error.starts_with(&format!("option `{option}`: ")), "{error}");
            assert!(error.contains(wrong), "{error}");
        }
    }
    for everybody in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        let error = builder().trusted_proxies([everybody]).build().expect_err(everybody);
        assert!(error.to_string().contains("is everybody"), "{error}");
        assert!(
            builder().exempt([everybody]).build().is_ok(),
            "no more than having no quota"
        );
    }
}
