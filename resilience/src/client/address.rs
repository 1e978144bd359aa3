//! Whose request it is: the peer's, or that of somebody behind proxies which are trusted to say so.

use std::{fmt, net::IpAddr, sync::Arc};

use poem::{Addr, Request, http::HeaderMap};

use super::{
    ClientKey,
    forwarded::{Hop, ProxyHeader},
    network::Network,
};

/// Most elements of the header that are read for one request.
const HOPS_MAX: usize = 32;

/// How to tell who is calling.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) trust_unix_sockets: bool,
    pub(crate) proxy_header: ProxyHeader,
    pub(crate) exempt: Vec<Network>,
    pub(crate) exempt_if: ExemptIf,
    /// From 1 to 128.
    pub(crate) ipv6_prefix: u8,
}

/// What says of requests by their looks that no quota by address counts them.
#[derive(Clone, Default)]
pub(crate) struct ExemptIf(pub(crate) Option<Arc<Exemption>>);

type Exemption = dyn Fn(&Request) -> bool + Send + Sync;

impl ExemptIf {
    fn says_so(&self, request: &Request) -> bool {
        self.0.as_ref().is_some_and(|exempt| exempt(request))
    }
}

impl fmt::Debug for ExemptIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(Fn)" } else { "None" })
    }
}

impl Callers {
    /// The bucket that quotas by address count this request in; `None` for a request that they do not count.
    pub(crate) fn key(&self, request: &Request) -> Option<ClientKey> {
        if self.exempt_if.says_so(request) {
            return None;
        }
        match self.caller(Peer::of(request), request.headers()) {
            Caller::Client(address) if contain(&self.exempt, address) => None,
            // What is exempt is a client that is known, never one that hides behind an exempt proxy.
            Caller::Client(address) | Caller::Behind(Some(address)) => Some(ClientKey::ip(address, self.ipv6_prefix)),
            Caller::Behind(None) => Some(ClientKey::unknown()),
        }
    }

    /// Whom attempts to log in count against: an exempt client too, since it may guess as well as any.
    pub(crate) fn subject(&self, request: &Request) -> ClientKey {
        match self.caller(Peer::of(request), request.headers()) {
            Caller::Client(address) | Caller::Behind(Some(address)) => ClientKey::ip(address, self.ipv6_prefix),
            Caller::Behind(None) => ClientKey::unknown(),
        }
    }

    /// Walks from the peer towards the client, for as long as hops are trusted: a trusted hop's word counts for who
    /// called it, and for nothing that stands to the left of that.
    fn caller(&self, peer: Peer, headers: &HeaderMap) -> Caller {
        let mut nearest = match peer {
            Peer::Ip(address) if contain(&self.trusted_proxies, address) => Some(address),
            Peer::Ip(address) => return Caller::Client(address),
            Peer::UnixSocket if self.trust_unix_sockets => None,
            Peer::UnixSocket | Peer::Other => return Caller::Behind(None),
        };
        let lines = headers.get_all(self.proxy_header.name());
        let mut hops = self.proxy_header.hops(lines.iter().map(|line| line.as_bytes()));
        for _ in 0..HOPS_MAX {
            match hops.next() {
                Some(Hop::Address(address)) if contain(&self.trusted_proxies, address) => nearest = Some(address),
                Some(Hop::Address(address)) => return Caller::Client(address),
                Some(Hop::Empty) => {}
                Some(Hop::Unreadable) => return Caller::Behind(nearest),
                // The request began at a hop that we trust: a health check, or a service next door.
                None => return nearest.map_or(Caller::Behind(None), Caller::Client),
            }
        }
        Caller::Behind(nearest)
    }
}

/// Whether the connection's peer has an address in one of these networks.
pub(crate) fn peer_is_in(request: &Request, networks: &[Network]) -> bool {
    matches!(Peer::of(request), Peer::Ip(address) if contain(networks, address))
}

fn contain(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// The other end of the connection.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Ip(IpAddr),
    UnixSocket,
    Other,
}

impl Peer {
    fn of(request: &Request) -> Self {
        match &request.remote_addr().0 {
            Addr::SocketAddr(address) => Self::Ip(address.ip().to_canonical()),
            #[cfg(unix)]
            Addr::Unix(_) => Self::UnixSocket,
            Addr::Custom(..) => Self::Other,
        }
    }
}

/// Who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// The client at this address.
    Client(IpAddr),
    /// Somebody whom the proxy at this address, the last one known, does not name. `None`: there is no address at all.
    Behind(Option<IpAddr>),
}

#[cfg(test)]
mod tests {
    use poem::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    }

    fn callers(proxy_header: ProxyHeader) -> Callers {
        Callers {
            trusted_proxies: networks(&["10.0.0.0/8", "2001:db8:f::/48"]),
            trust_unix_sockets: true,
            proxy_header,
            exempt: networks(&["10.0.0.9", "198.51.100.0/24"]),
            exempt_if: ExemptIf::default(),
            ipv6_prefix: 64,
        }
    }

    fn headers<T: AsRef<[u8]>>(header: ProxyHeader, lines: &[T]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            let line = HeaderValue::from_bytes(line.as_ref()).expect("a header value");
            headers.append(header.name(), line);
        }
        headers
    }

    fn caller(peer: Peer, lines: &[&str]) -> Caller {
        let header = ProxyHeader::XForwardedFor;
        callers(header).caller(peer, &headers(header, lines))
    }

    #[test]
    fn the_first_hop_that_is_not_trusted_is_the_client() {
        let client = Caller::Client(ip("203.0.113.7"));
        for (peer, lines) in [
            ("203.0.113.7", &["192.0.2.1"][..]),
            ("203.0.113.7", &["10.0.0.1"]),
            ("10.0.0.1", &["203.0.113.7"]),
            ("::ffff:10.0.0.1", &["203.0.113.7"]),
            ("10.0.0.1", &["192.0.2.1, 203.0.113.7"]),
            ("10.0.0.1", &["192.0.2.1, 10.0.0.3, 203.0.113.7:4711, 10.0.0.2"]),
            ("10.0.0.1", &["192.0.2.1", "203.0.113.7", "2001:db8:f::2"]),
            ("2001:db8:f::1", &["junk, ::ffff:203.0.113.7, , [::ffff:10.0.0.2]:80"]),
        ] {
            assert_eq!(caller(Peer::Ip(ip(peer)), lines), client, "{peer} {lines:?}");
        }
        assert_eq!(caller(Peer::UnixSocket, &["192.0.2.1, 203.0.113.7"]), client);
    }

    #[test]
    fn a_chain_of_trusted_hops_began_at_the_farthest() {
        let peer = Peer::Ip(ip("10.0.0.1"));
        assert_eq!(caller(peer, &[]), Caller::Client(ip("10.0.0.1")));
        assert_eq!(caller(peer, &["", " , "]), Caller::Client(ip("10.0.0.1")));
        assert_eq!(caller(peer, &["10.0.0.3, 10.0.0.2"]), Caller::Client(ip("10.0.0.3")));
        assert_eq!(caller(Peer::UnixSocket, &["10.0.0.3"]), Caller::Client(ip("10.0.0.3")));
        assert_eq!(caller(Peer::UnixSocket, &[]), Caller::Behind(None));
    }

    #[test]
    fn past_what_cannot_be_read_nobody_is_known() {
        let peer = Peer::Ip(ip("10.0.0.1"));
        let behind = |address: &str| Caller::Behind(Some(ip(address)));
        for unreadable in ["unknown", "_hidden", "203.0.113.7.", &" x".repeat(4_000)] {
            assert_eq!(caller(peer, &[unreadable]), behind("10.0.0.1"), "{unreadable}");
            let chain = format!("203.0.113.7, {unreadable}, 10.0.0.2");
            assert_eq!(caller(peer, &[&chain]), behind("10.0.0.2"), "{unreadable}");
        }
        assert_eq!(caller(Peer::UnixSocket, &["unknown"]), Caller::Behind(None));
        assert_eq!(caller(Peer::Other, &["203.0.113.7"]), Caller::Behind(None));
    }

    #[test]
    fn a_chain_longer_than_the_limit_is_not_followed() {
        let peer = Peer::Ip(ip("10.0.0.1"));
        let chain = |hops: usize| format!("203.0.113.7{}", ", 10.0.0.2".repeat(hops));
        assert_eq!(caller(peer, &[&chain(HOPS_MAX - 1)]), Caller::Client(ip("203.0.113.7")));
        assert_eq!(caller(peer, &[&chain(HOPS_MAX)]), Caller::Behind(Some(ip("10.0.0.2"))));
        let empty = format!("203.0.113.7{}", ",".repeat(HOPS_MAX));
        assert_eq!(caller(peer, &[&empty]), Caller::Behind(Some(ip("10.0.0.1"))));
    }

    #[test]
    fn unix_sockets_are_trusted_on_demand_only() {
        let header = ProxyHeader::default();
        let callers = Callers {
            trust_unix_sockets: false,
            ..callers(header)
        };
        let headers = headers(header, &["203.0.113.7"]);
        assert_eq!(callers.caller(Peer::UnixSocket, &headers), Caller::Behind(None));
    }

    /// What a client may have sent: any bytes that a header can hold, with a bias to those that mean something.
    fn pretended() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                ",",
                ";",
                "\"",
                "\\",
                "for=",
                " ",
                "10.0.0.1",
                "192.0.2.1",
                "unknown",
                "[::1]:1"
            ])
            .prop_map(|piece| piece.as_bytes().to_vec()),
            any::<u8>()
                .prop_filter("may stand in a header", |byte| HeaderValue::from_bytes(&[*byte])
                    .is_ok())
                .prop_map(|byte| vec![byte]),
        ];
        let line = prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat());
        prop::collection::vec(line, 0..4)
    }

    fn untrusted() -> impl Strategy<Value = IpAddr> {
        let trusted = callers(ProxyHeader::default()).trusted_proxies;
        any::<IpAddr>().prop_filter("not a proxy", move |address| !contain(&trusted, *address))
    }

    fn trusted() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
            any::<u16>().prop_map(|last| IpAddr::from([0x2001, 0xdb8, 0xf, 0, 0, 0, 0, last])),
        ]
    }

    proptest! {
        /// A client that connects to the outermost proxy is found by its address, whatever it claims; the same client
        /// that connects to us directly is found just so.
        #[test]
        fn no_client_chooses_its_bucket(
            pretended in pretended(),
            client in untrusted(),
            proxies in prop::collection::vec((trusted(), any::<bool>()), 1..6),
            rfc in any::<bool>(),
        ) {
            let header = if rfc { ProxyHeader::Forwarded } else { ProxyHeader::XForwardedFor };
            let callers = callers(header);
            let expected = Caller::Client(client.to_canonical());

            let mut lines = pretended.clone();
            let direct = callers.caller(Peer::Ip(client.to_canonical()), &headers(header, &lines));
            prop_assert_eq!(direct, expected);

            // Each proxy appends who called it: to the last line, or on a line of its own.
            let mut called_by = client;
            for &(proxy, own_line) in &proxies {
                let word = match (rfc, called_by) {
                    (false, _) => called_by.to_string(),
                    (true, IpAddr::V4(_)) => format!("for={called_by};host=\"a\\\"b\""),
                    (true, IpAddr::V6(_)) => format!("proto=https;for=\"[{called_by}]:4711\""),
                };
                match lines.last_mut() {
                    Some(last) if !own_line => {
                        last.extend_from_slice(b", ");
                        last.extend_from_slice(word.as_bytes());
                    }
                    _ => lines.push(word.into_bytes()),
                }
                called_by = proxy;
            }
            let found = callers.caller(Peer::Ip(called_by), &headers(header, &lines));
            prop_assert_eq!(found, expected);
        }
    }
}
