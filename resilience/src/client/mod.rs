//! Who is calling, as a limiter sees it.
//!
//! The connection's peer, or who is behind the proxies that [`Builder::trusted_proxies`](crate::Builder::trusted_proxies)
//! names.

mod account;
mod address;
mod forwarded;
mod network;
mod origin;

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv6Addr},
};

use poem::Request;
use sha2::{Digest, Sha256};

use crate::store::layout::push_hex;

pub use self::{
    account::InvalidAccount,
    forwarded::ProxyHeader,
    network::{InvalidNetwork, Network},
};
pub(crate) use self::{
    address::{Callers, ExemptIf, peer_is_in},
    origin::origin,
};

/// The part of a limiter's key that names the client.
///
/// Bounded and unambiguous. A value that a client chooses or that names a person (a user, an account, a header, the result of
/// a custom fn) is always hashed: `kind:#<first 128 bits of its SHA-256>`. Without a value it is `kind:-`. No value can reach
/// another client's bucket.
///
/// An address stays readable, since an unkeyed hash of an IPv4 address is reversed in seconds by hashing all of them. A
/// [secret](crate::store::KeyLayout::with_key_secret) hides addresses in a shared store, and values that can be guessed.
#[derive(Clone)]
pub struct ClientKey {
    key: Cow<'static, str>,
    /// The origin of an account's exact text; `None` of any other key. Two spellings of an account are equal keys.
    spelled: Option<u64>,
}

impl ClientKey {
    /// The bucket of everybody.
    #[must_use]
    pub fn global() -> Self {
        Self::of("global")
    }

    /// The one bucket of all clients that no address is known of.
    #[must_use]
    pub fn unknown() -> Self {
        Self::of("ip:unknown")
    }

    /// The bucket of an address, an IPv6 address cut to `ipv6_prefix` bits; `::ffff:a.b.c.d` counts as the IPv4 address
    /// that it maps.
    #[must_use]
    pub fn ip(address: IpAddr, ipv6_prefix: u8) -> Self {
        let mut key = String::with_capacity(24);
        key.push_str("ip:");
        let written = match address.to_canonical() {
            IpAddr::V4(address) => write!(key, "{address}"),
            IpAddr::V6(address) => write!(key, "{}/{ipv6_prefix}", network(address, ipv6_prefix)),
        };
        written.expect("a String takes all that is written");
        Self::of(key)
    }

    /// The bucket of a verified user. Hashed.
    #[must_use]
    pub fn user(user: &str) -> Self {
        Self::value("user", "", Some(user.as_bytes()))
    }

    /// The tally of an account, in its canonical form: trimmed, in NFKC, case-folded and without invisible or control characters, so that spellings that a login
    /// may take for the same are counted together. Hashed.
    ///
    /// The key also carries a hash of the exact text, which comparing, hashing and [`as_str`](Self::as_str) ignore: a
    /// success by way of [`Lockout::begin`](crate::lockout::Lockout::begin) removes failures of the same spelling only.
    ///
    /// # Errors
    ///
    /// For an account that is empty, or longer than 512 bytes.
    pub fn account(account: &str) -> Result<Self, InvalidAccount> {
        let canonical = account::canonical(account)?;
        Ok(Self {
            spelled: Some(origin(&[account.as_bytes()])),
            ..Self::value("account", "", Some(canonical.as_bytes()))
        })
    }

    /// The bucket of a header's value; requests without the header share one. Of several values the first counts.
    /// Hashed: it may be a credential.
    #[must_use]
    pub fn header(request: &Request, name: &str) -> Self {
        let value = request.headers().get(name).map(|value| value.as_bytes());
        // The header's name comes from the policy: two headers with the same value are two buckets.
        Self::value("header:", name, value)
    }

    /// The bucket of a value that a fn of the user's own returns; `None` is a bucket like any other.
    /// Hashed.
    #[must_use]
    pub fn custom(value: Option<&str>) -> Self {
        Self::value("custom", "", value.map(str::as_bytes))
    }

    /// `kind:#hash` or `kind:-` for none. The hash has 128 bits: two values in one bucket cannot be found.
    fn value(kind: &str, name: &str, value: Option<&[u8]>) -> Self {
        let mut key = String::with_capacity(kind.len() + name.len() + 34);
        key.push_str(kind);
        key.push_str(name);
        match value {
            None => key.push_str(":-"),
            Some(value) => {
                key.push_str(":#");
                push_hex(&mut key, &Sha256::digest(value)[..16]);
            }
        }
        Self::of(key)
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.key
    }

    /// The origin of an attempt of which nothing but this key is known.
    pub(crate) fn origin(&self) -> u64 {
        self.spelled.unwrap_or_else(|| origin(&[self.key.as_bytes()]))
    }

    fn of(key: impl Into<Cow<'static, str>>) -> Self {
        Self {
            key: key.into(),
            spelled: None,
        }
    }
}

impl PartialEq for ClientKey {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for ClientKey {}

impl Hash for ClientKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientKey").field(&self.key).finish()
    }
}

fn network(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(address: &str, prefix: u8) -> String {
        ClientKey::ip(address.parse().expect("an address"), prefix)
            .key
            .into_owned()
    }

    #[test]
    fn mapped_addresses_are_unmapped() {
        assert_eq!(ip("203.0.113.7", 64), "ip:203.0.113.7");
        assert_eq!(ip("::ffff:203.0.113.7", 64), "ip:203.0.113.7");
    }

    #[test]
    fn ipv6_is_cut_to_its_prefix() {
        assert_eq!(ip("2001:db8:1:2:3:4:5:6", 64), "ip:2001:db8:1:2::/64");
        assert_eq!(ip("2001:db8:1:2:3:4:5:6", 48), "ip:2001:db8:1::/48");
        assert_eq!(ip("2001:db8:1:2:3:4:5:6", 128), "ip:2001:db8:1:2:3:4:5:6/128");
        assert_eq!(ip("2001:db8::1", 0), "ip:::/0");
    }

    #[test]
    fn a_missing_header_is_no_value() {
        let with = |value: &'static str| Request::builder().header("x-tenant", value).finish();
        assert_eq!(
            ClientKey::header(&Request::default(), "x-tenant").key,
            "header:x-tenant:-"
        );
        for value in ["-", "", "acme"] {
            let key = ClientKey::header(&with(value), "x-tenant").key;
            assert!(key.starts_with("header:x-tenant:#"), "{key}");
        }
    }

    #[test]
    fn values_are_hashed_however_plain_they_are() {
        assert_eq!(ClientKey::user("ada").key, "user:#fdee430d40bd57deeac186cd9790033d");
        let request = Request::builder().header("authorization", "letmein").finish();
        for key in [
            ClientKey::user("letmein"),
            ClientKey::account("letmein").unwrap(),
            ClientKey::header(&request, "authorization"),
            ClientKey::custom(Some("letmein")),
        ] {
            let (_, hash) = key.key.split_once(":#").unwrap();
            assert_eq!(hash, "1c8bfe8f801d79745c4631d09fff36c8");
        }
    }

    #[test]
    fn spellings_are_one_key_of_two_origins() {
        let key = |account| ClientKey::account(account).expect("an account");
        let (one, other) = (key("ada"), key("ADA"));
        assert_eq!((&one, format!("{one:?}")), (&other, format!("{other:?}")));
        assert_ne!(one.origin(), other.origin());
        assert_eq!(one.origin(), key("ada").origin());
        assert_ne!(ClientKey::user("ada").origin(), ClientKey::global().origin());
    }

    proptest! {
        #[test]
        fn different_values_are_different_buckets(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            let (x, y) = (ClientKey::value("user", "", Some(&a)), ClientKey::value("user", "", Some(&b)));
            prop_assert_eq!(a == b, x == y);
            prop_assert!(x.key.len() <= 150);
            let is_safe = |c: char| c.is_ascii_graphic() && !matches!(c, '{' | '}');
            prop_assert!(x.key.chars().all(is_safe), "{}", x.key);
        }
    }
}
