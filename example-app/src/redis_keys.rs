//! Finds a client's keys in Redis: their names hold hashes.

use std::{error::Error, net::IpAddr};

use clap::Subcommand;
use poem::Request;
use resilience::client::ClientKey;

use crate::config::Config;

/// The bits of an IPv6 address that tell clients apart, as the service has them.
const IPV6_PREFIX: u8 = 64;

#[derive(Subcommand)]
pub(crate) enum Client {
    /// A verified user, as the store names it for an API key
    User {
        /// The user's id
        user: String,
    },
    /// An account that logs in
    Account {
        /// The account's name, in any spelling
        account: String,
    },
    /// An address; of IPv6 its /64
    Ip {
        /// The address, without a port
        address: IpAddr,
    },
    /// The value of a header
    Header {
        /// The header's name, as in `key = header("x-tenant")`
        name: String,
        /// The value that the client sends
        value: String,
    },
}

impl Client {
    fn key(&self) -> Result<ClientKey, Box<dyn Error>> {
        Ok(match self {
            Self::User { user } => ClientKey::user(user),
            Self::Account { account } => ClientKey::account(account)?,
            Self::Ip { address } => ClientKey::ip(*address, IPV6_PREFIX),
            Self::Header { name, value } => {
                let name: poem::http::HeaderName = name.parse()?;
                let value = poem::http::HeaderValue::from_str(value)?;
                let mut request = Request::default();
                request.headers_mut().insert(&name, value);
                ClientKey::header(&request, name.as_str())
            }
        })
    }
}

/// Prints one pattern per line: the counts, then the tallies.
pub(crate) fn print(config: &Config, client: Client) -> Result<(), Box<dyn Error>> {
    let (layout, key) = (config.layout()?, client.key()?);
    println!("{}", layout.count_pattern(key.as_str()));
    println!("{}", layout.tally_pattern(key.as_str()));
    Ok(())
}
