//! Networks, as the builder takes them.

use std::{convert::Infallible, fmt, net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net};

/// A range of addresses in CIDR notation; a bare address is the range of that one address.
///
/// IPv4 in its IPv6 form (`::ffff:10.0.0.0/104`) is the IPv4 network that it maps.
///
/// ```
/// use resilience::client::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse()?));
/// assert!("10.1.2.3/8".parse::<Network>().is_err(), "which network is meant?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether the address lies in it. `::ffff:a.b.c.d` counts as the IPv4 address that it maps.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether it is all of IPv4 or all of IPv6.
    pub(crate) fn is_everybody(&self) -> bool {
        self.0.prefix_len() == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<IpNet> for Network {
    type Error = InvalidNetwork;

    fn try_from(network: IpNet) -> Result<Self, InvalidNetwork> {
        // More often than not a typing error, and then in the prefix as often as in the address.
        if network != network.trunc() {
            return Err(InvalidNetwork(format!(
                "`{network}` has bits set behind its prefix: `{}` is the network, `{}` the address",
                network.trunc(),
                network.addr()
            )));
        }
        Ok(Self(unmapped(network)))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let network: IpNet = text.parse().map_err(|_| {
            InvalidNetwork(format!(
                "{text:?} is neither a network such as `10.0.0.0/8` nor an address"
            ))
        })?;
        network.try_into()
    }
}

impl TryFrom<&str> for Network {
    type Error = InvalidNetwork;

    fn try_from(text: &str) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl TryFrom<&String> for Network {
    type Error = InvalidNetwork;

    fn try_from(text: &String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl TryFrom<String> for Network {
    type Error = InvalidNetwork;

    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

/// Why something is no [`Network`], in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidNetwork(String);

impl InvalidNetwork {
    pub(crate) fn everybody(network: Network) -> Self {
        Self(format!(
            "`{network}` is everybody: with every hop trusted, a client's own word would count"
        ))
    }
}

/// What is a network already cannot be an invalid one.
impl From<Infallible> for InvalidNetwork {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    v6.addr()
        .to_ipv4_mapped()
        .zip(v6.prefix_len().checked_sub(96))
        .and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn networks_and_addresses_are_understood() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            "10/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.1/8",
            "2001:db8::1/32",
            "::/129",
            "[::1]",
            "localhost",
            "10.0.0.0/8,",
            " 10.0.0.0/8",
            "010.0.0.1",
            "fe80::1%eth0",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn mapped_addresses_lie_in_the_ipv4_network() {
        let address = |text: &str| text.parse().expect("an address");
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.9.9.9")));
        assert!(network("::ffff:10.0.0.0/104").contains(address("10.9.9.9")));
        assert!(!network("10.0.0.0/8").contains(address("11.0.0.0")));
        assert!(!network("::/1").contains(address("10.0.0.0")));
    }
}
