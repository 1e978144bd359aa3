//! Who is calling: settings of proxies, of exempt clients and of addresses.

use std::sync::Arc;

use poem::Request;

use super::Builder;
use crate::client::{ExemptIf, InvalidNetwork, Network, ProxyHeader};

impl Builder {
    /// The networks of the proxies in front of this service, as text in CIDR notation or as `ipnet::IpNet`; a bare
    /// address is the network of that one. A second call replaces the first.
    ///
    /// If the connection's peer lies in one of them, quotas by `ip` count the client that is named in the
    /// [`proxy_header`](Self::proxy_header): the first address from the right that is not trusted itself. What stands to
    /// the left of it is the client's own word, and is not read. If the peer is not trusted, neither is the header.
    ///
    /// - All hops are trusted: the farthest is the client.
    /// - A hop says nothing of use (`unknown`, `_hidden`, malformed, an element longer than 512 bytes), or the client is
    ///   not among the last 32 elements: all requests of that kind count as those of the last proxy that was read.
    ///
    /// Name the proxies, not the whole private network: whoever is in a trusted network may claim any address. A network
    /// of length 0 is refused for that reason.
    ///
    /// ```
    /// # use resilience::Resilience;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), resilience::BuildError> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .trusted_proxies(["10.0.7.0/24", "2001:db8:7::/64"])
    ///     .exempt(["198.51.100.20"])
    ///     .build()?;
    /// # drop(resilience);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trusted_proxies<N>(mut self, networks: impl IntoIterator<Item = N>) -> Self
    where
        N: TryInto<Network, Error: Into<InvalidNetwork>>,
    {
        self.trusted_proxies =
            collected(networks).and_then(
                |networks| match networks.iter().find(|network| network.is_everybody()) {
                    Some(network) => Err(InvalidNetwork::everybody(*network)),
                    None => Ok(networks),
                },
            );
        self
    }

    /// Whether a peer at the other end of a unix socket is a trusted proxy. If not, and also if the header then names
    /// nobody, all such requests share one bucket, that of clients without an address.
    pub fn trust_unix_sockets(mut self, trust: bool) -> Self {
        self.trust_unix_sockets = trust;
        self
    }

    /// The header that the trusted proxies maintain. Never both: a proxy that appends to one passes the other on as the
    /// client sent it, and that would be the client's own choice of an address.
    pub fn proxy_header(mut self, header: ProxyHeader) -> Self {
        self.proxy_header = header;
        self
    }

    /// Clients that no quota by `ip` counts, such as health checks and your own crawlers; networks are written as for
    /// [`trusted_proxies`](Self::trusted_proxies). All other quotas count them. A second call replaces the first.
    ///
    /// It goes by the client's address. Who hides behind an exempt proxy is not exempt.
    pub fn exempt<N>(mut self, networks: impl IntoIterator<Item = N>) -> Self
    where
        N: TryInto<Network, Error: Into<InvalidNetwork>>,
    {
        self.exempt = collected(networks);
        self
    }

    /// Requests that no quota by `ip` counts, whoever sends them; all other quotas count them. Beside
    /// [`exempt`](Self::exempt): a request is exempt if either says so. A second call replaces the first.
    ///
    /// Go by what only those can send whom you mean: anybody can copy a path, a `User-Agent` or any other header. It runs
    /// once for each request to a handler with a quota by `ip`, before authentication, so it must be quick and must not
    /// block. If it panics, the request ends as it would if the handler did.
    ///
    /// ```
    /// # use resilience::Resilience;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), resilience::BuildError> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .exempt_if(|request| request.uri().path() == "/healthz")
    ///     .build()?;
    /// # drop(resilience);
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt_if(mut self, exempt: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.exempt_if = ExemptIf(Some(Arc::new(exempt)));
        self
    }

    /// How many bits of an IPv6 address tell clients apart, from 1 to 128. A household has a /64 at least.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }
}

pub(super) fn collected<N>(networks: impl IntoIterator<Item = N>) -> Result<Vec<Network>, InvalidNetwork>
where
    N: TryInto<Network, Error: Into<InvalidNetwork>>,
{
    let networks = networks.into_iter();
    networks.map(|network| network.try_into().map_err(Into::into)).collect()
}
