//! The names of keys.

use std::fmt;

use sha2::{Digest, Sha256};

use super::key_secret::{InvalidKeySecret, KeySecret};

/// How API keys are kept in the store.
///
/// Use one form per namespace: where both are read, whoever has seen a stored hash can present it as a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiKeys(Form);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Sha256,
    Plain,
}

impl ApiKeys {
    /// `apikey-sha256:<hex>`: who can read the store cannot read the keys. The default.
    ///
    /// A plain SHA-256 protects keys that cannot be guessed, which random ones of 128 bits or more cannot.
    #[must_use]
    pub const fn sha256() -> Self {
        Self(Form::Sha256)
    }

    /// `apikey:<key>`: for stores that other programs fill in this way.
    #[must_use]
    pub const fn plain() -> Self {
        Self(Form::Plain)
    }
}

/// The names under which [`RedisStore`](super::RedisStore) keeps things.
///
/// | what | key | value |
/// |---|---|---|
/// | an API key | `apikey-sha256:<hex>` or `apikey:<key>` | the user's id |
/// | a flag | `flag:<name>` | `1` or `0`, `on` or `off`, or another word of [`flag_value`](super::flag_value()) |
/// | limits by name | `limits` | a hash: name to JSON |
/// | a tally of attempts | `lock:{<subject>}:<lockout>` | its locks, failures and attempts under way, packed behind a version byte, with an expiry |
/// | a client's count | `rl:{<client>}:<quota>` | counters in 24 or 16 bytes, the times of up to 100 admitted units in 6 each, or the time of a full bucket in 12, with an expiry |
/// | a shared breaker's last opening or closing | `breaker:{<system>}:circuit:<name>` | a hash, with an expiry |
/// | an operator's hold on it | `breaker:{<system>}:hold:<name>` | a hash, with an expiry if the hold has one |
/// | instances that would open it | `breaker:{<system>}:votes:<name>` | a sorted set by when that ends, with an expiry |
/// | the lease of its probe | `breaker:{<system>}:lease:<name>` | the instance that has it, with an expiry |
/// | who would like that lease | `breaker:{<system>}:wanted:<name>` | an instance, with an expiry |
/// | the system's instances | `breaker:{<system>}:instances` | a sorted set by when they were last seen, with an expiry |
/// | names of the system's breakers | `breaker:{<system>}:names` | a sorted set by when they were last seen |
///
/// `<client>` and `<subject>` are the text of a [`ClientKey`](crate::client::ClientKey):
///
/// | kind of client | without a secret | with a [secret](Self::with_key_secret) |
/// |---|---|---|
/// | a user, an account, a custom value | `user:#<hash>` | `user:~<code>` |
/// | a header's value | `header:x-tenant:#<hash>` | `header:x-tenant:~<code>` |
/// | no value | `user:-` | `user:~<code>` |
/// | an address | `ip:203.0.113.7` | `ip:~<code>` |
/// | all requests together | `global` | `global` |
///
/// `<hash>` is the first half of a SHA-256, `<code>` that of an HMAC-SHA256, each in 32 hexadecimal digits. Without a secret, a
/// value that can be guessed (a mail address) can be found by hashing guesses, and addresses stay readable: all IPv4 addresses
/// are hashed in seconds. Random credentials cannot be found. [`count_pattern`](Self::count_pattern) and
/// [`tally_pattern`](Self::tally_pattern) find one client's keys.
///
/// Each comes after the prefix, as does the channel `breaker:{<system>}:changes`, on which names of breakers are published.
/// The counts of one client share a hash tag, and so do the breakers of a system. Other keys of one decision do not, which is
/// why a Redis in cluster mode is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLayout {
    prefix: String,
    api_keys: ApiKeys,
    secret: Option<KeySecret>,
}

/// A prefix that cannot stand before keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPrefix(pub(crate) &'static str);

impl KeyLayout {
    /// No prefix, API keys as SHA-256.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How API keys are kept.
    #[must_use]
    pub fn with_api_keys(mut self, api_keys: ApiKeys) -> Self {
        self.api_keys = api_keys;
        self
    }

    /// Puts `prefix` before every key, as it is: write its separator too (`"shop:"`).
    ///
    /// # Errors
    ///
    /// For a prefix longer than 128 bytes, or with anything but visible ASCII, or with a brace (which would take the
    /// place of the hash tag).
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self, InvalidPrefix> {
        let prefix = prefix.into();
        if prefix.len() > 128 {
            return Err(InvalidPrefix("is longer than 128 bytes"));
        }
        if !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidPrefix("has characters other than visible ASCII"));
        }
        if prefix.contains(['{', '}']) {
            return Err(InvalidPrefix(
                "has a brace, which would become the hash tag of a cluster",
            ));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Replaces the client in the names of counts and tallies by `kind:~<code>`, with the first 128 bits of an
    /// HMAC-SHA256 under `secret`. Addresses are replaced too. None by default.
    ///
    /// All instances of a service need the same secret. If it changes, all counts and locks start anew.
    ///
    /// # Errors
    ///
    /// For a secret of fewer than 16 bytes.
    pub fn with_key_secret(self, secret: impl AsRef<[u8]>) -> Result<Self, InvalidKeySecret> {
        Ok(self.keyed(Some(KeySecret::new(secret.as_ref())?)))
    }

    pub(crate) fn keyed(mut self, secret: Option<KeySecret>) -> Self {
        self.secret = secret;
        self
    }

    /// The key of an API key.
    #[must_use]
    pub fn api_key(&self, api_key: &str) -> String {
        match self.api_keys.0 {
            Form::Sha256 => {
                let mut key = self.named("apikey-sha256:", 64);
                push_hex(&mut key, &sha256(api_key));
                key
            }
            Form::Plain => self.named("apikey:", api_key.len()) + api_key,
        }
    }

    /// The key of a flag.
    #[must_use]
    pub fn flag(&self, name: &str) -> String {
        self.named("flag:", name.len()) + name
    }

    /// The key of the hash that holds limits by name.
    #[must_use]
    pub fn limits(&self) -> String {
        self.named("limits", 0)
    }

    /// The key of a client's count against a quota.
    ///
    /// No two pairs share a key: a quota's id is escaped so that it has no brace, hence the last `}:` ends the client.
    #[must_use]
    pub fn count(&self, client: &str, quota: &str) -> String {
        self.tagged("rl:{", client, quota)
    }

    /// The key of a subject's tally of attempts. No two pairs share a key.
    #[must_use]
    pub fn tally(&self, subject: &str, lockout: &str) -> String {
        self.tagged("lock:{", subject, lockout)
    }

    /// What all keys of a system's breakers begin with, and the channel of their changes. A breaker's name comes last in
    /// its keys, so that it may be any text.
    #[must_use]
    pub fn breakers(&self, system: &str) -> String {
        self.named("breaker:{", system.len() + 2) + system + "}:"
    }

    /// A glob pattern for `SCAN` that matches the counts of one client against all quotas, and no other key.
    ///
    /// ```
    /// use resilience::{client::ClientKey, store::KeyLayout};
    ///
    /// let ada = ClientKey::user("ada");
    /// let pattern = KeyLayout::new().count_pattern(ada.as_str());
    /// assert_eq!(pattern, "rl:{user:#fdee430d40bd57deeac186cd9790033d}:*");
    /// ```
    #[must_use]
    pub fn count_pattern(&self, client: &str) -> String {
        escape_glob(&self.tagged("rl:{", client, "")) + "*"
    }

    /// A glob pattern for `SCAN` that matches the tallies of one subject in all lockouts, and no other key.
    #[must_use]
    pub fn tally_pattern(&self, subject: &str) -> String {
        escape_glob(&self.tagged("lock:{", subject, "")) + "*"
    }

    /// `kind` ends with the brace that opens the hash tag.
    fn tagged(&self, kind: &str, client: &str, id: &str) -> String {
        let mut key = self.named(kind, client.len() + 2 + id.len());
        match &self.secret {
            None => key.push_str(client),
            Some(secret) => key.push_str(&secret.hide(client)),
        }
        key.push_str("}:");
        for part in id.split_inclusive(['%', '}']) {
            match part.as_bytes().last() {
                Some(b'%') => key.extend([&part[..part.len() - 1], "%25"]),
                Some(b'}') => key.extend([&part[..part.len() - 1], "%7D"]),
                _ => key.push_str(part),
            }
        }
        key
    }

    /// The key that is written and read to see whether the store serves.
    pub(crate) fn probe(&self) -> String {
        self.named("probe", 0)
    }

    fn named(&self, kind: &str, rest: usize) -> String {
        let mut key = String::with_capacity(self.prefix.len() + kind.len() + rest);
        key.push_str(&self.prefix);
        key.push_str(kind);
        key
    }
}

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key prefix {}", self.0)
    }
}

impl std::error::Error for InvalidPrefix {}

/// The form in which both stores keep an API key unless told otherwise.
pub(crate) fn sha256(api_key: &str) -> [u8; 32] {
    Sha256::digest(api_key.as_bytes()).into()
}

/// Puts a backslash before each character that means something in a pattern of Redis.
fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn api_keys_are_hashed_unless_asked_for_in_clear() {
        let layout = KeyLayout::new();
        assert_eq!(
            layout.api_key("letmein"),
            "apikey-sha256:1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032"
        );
        let plain = layout.with_api_keys(ApiKeys::plain());
        assert_eq!(plain.api_key("letmein"), "apikey:letmein");
    }

    #[test]
    fn the_prefix_stands_before_everything() {
        let layout = KeyLayout::new().with_prefix("shop:").unwrap();
        assert!(layout.api_key("k").starts_with("shop:apikey-sha256:"));
        assert_eq!(layout.flag("checkout"), "shop:flag:checkout");
        assert_eq!(
            layout.count("ip:10.0.0.1", "checkout"),
            "shop:rl:{ip:10.0.0.1}:checkout"
        );
        assert_eq!(layout.limits(), "shop:limits");
        assert_eq!(layout.breakers("payments-team"), "shop:breaker:{payments-team}:");
        assert_eq!(layout.probe(), "shop:probe");
    }

    #[test]
    fn a_secret_hides_clients_within_the_hash_tag() {
        let layout = KeyLayout::new().with_key_secret("0123456789abcdef").unwrap();
        for key in [layout.count("ip:10.0.0.1", "q"), layout.tally("ip:10.0.0.1", "q")] {
            let (_, rest) = key.split_once(":{ip:~").expect("the kind stays readable");
            assert_eq!((rest.find('}'), rest.ends_with("}:q")), (Some(32), true), "{key}");
        }
        assert_eq!(layout.flag("checkout"), "flag:checkout");
        assert!(!format!("{layout:?}").contains("0123456789abcdef"));
        let error = KeyLayout::new().with_key_secret("0123456789abcde").unwrap_err();
        assert_eq!(error.to_string(), "the key secret has 15 bytes; write at least 16");
    }

    #[test]
    fn patterns_escape_what_a_glob_would_read() {
        let layout = KeyLayout::new().with_prefix(r"a*b?[c]\:").unwrap();
        assert_eq!(layout.count_pattern("ip:10.0.0.1"), r"a\*b\?\[c\]\\:rl:{ip:10.0.0.1}:*");
        assert_eq!(
            KeyLayout::new().tally_pattern("header:x-*:-"),
            r"lock:{header:x-\*:-}:*"
        );
    }

    #[test]
    fn prefixes_that_would_break_keys_are_refused() {
        for prefix in ["a b", "tab\t", "ü:", "{shop}:", "}", &"x".repeat(129)] {
            assert!(KeyLayout::new().with_prefix(prefix).is_err(), "{prefix}");
        }
        assert!(KeyLayout::new().with_prefix("x".repeat(128)).is_ok());
    }

    #[test]
    fn a_client_cannot_name_another_quota() {
        let layout = KeyLayout::new();
        assert_ne!(layout.count("a}:b", "c"), layout.count("a", "b}:c"));
        assert_ne!(layout.count("a", "b}"), layout.count("a", "b%7D"));
    }

    proptest! {
        #[test]
        fn different_pairs_have_different_keys(
            one in ("[a:}%{7D]{0,6}", "[a:}%{7D]{0,6}"),
            two in ("[a:}%{7D]{0,6}", "[a:}%{7D]{0,6}"),
        ) {
            let layout = KeyLayout::new();
            prop_assert_eq!(one == two, layout.count(&one.0, &one.1) == layout.count(&two.0, &two.1));
        }
    }
}
