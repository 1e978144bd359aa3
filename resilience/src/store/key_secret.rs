//! The secret that hides clients in the names of keys.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::layout::push_hex;

/// The least length of a secret, in bytes.
const SHORTEST: usize = 16;

/// A secret for the names of keys that is too short: it has fewer than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key secret has {0} bytes; write at least {SHORTEST}")]
pub struct InvalidKeySecret(pub(crate) usize);

/// HMAC-SHA256 with its key already absorbed. The secret itself is not kept.
#[derive(Clone)]
pub(crate) struct KeySecret(Arc<Hmac<Sha256>>);

impl KeySecret {
    pub(crate) fn new(secret: &[u8]) -> Result<Self, InvalidKeySecret> {
        if secret.len() < SHORTEST {
            return Err(InvalidKeySecret(secret.len()));
        }
        let keyed = Hmac::new_from_slice(secret).expect("HMAC takes a key of any length");
        Ok(Self(Arc::new(keyed)))
    }

    /// `kind:~<32 hex>` for the text of a client key. `global` names no client and stays readable.
    pub(crate) fn hide(&self, client: &str) -> String {
        if client == GLOBAL {
            return client.to_owned();
        }
        let kind = kind(client);
        let mut hidden = String::with_capacity(kind.len() + 34);
        hidden.push_str(kind);
        hidden.push_str(":~");
        push_hex(&mut hidden, &self.code(client)[..16]);
        hidden
    }

    fn code(&self, text: &str) -> [u8; 32] {
        let keyed = Hmac::clone(&self.0);
        keyed.chain_update(text).finalize().into_bytes().into()
    }
}

/// The client key that counts all requests together.
const GLOBAL: &str = "global";

/// The readable part before the sign. A text that no [`ClientKey`](crate::client::ClientKey) has is hidden as a whole.
fn kind(client: &str) -> &str {
    if client.starts_with("ip:") {
        return "ip";
    }
    match client.rsplit_once(':') {
        Some((kind, "-")) => kind,
        Some((kind, hash)) if hash.len() == 33 && hash.starts_with('#') => kind,
        _ => "other",
    }
}

impl PartialEq for KeySecret {
    fn eq(&self, other: &Self) -> bool {
        self.code("") == other.code("")
    }
}

impl Eq for KeySecret {}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;

    fn secret(text: &str) -> KeySecret {
        KeySecret::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_code_is_hmac_sha256() {
        // RFC 4231, test case 1.
        let known = KeySecret::new(&[0x0b; 20]).unwrap();
        let mut code = String::new();
        push_hex(&mut code, &known.code("Hi There"));
        assert_eq!(code, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn the_kind_stays_readable_and_nothing_else() {
        let secret = secret("0123456789abcdef");
        let request = poem::Request::builder().header("x-tenant", "acme").finish();
        for (key, kind) in [
            (ClientKey::ip("203.0.113.7".parse().unwrap(), 64), "ip:~"),
            (ClientKey::ip("2001:db8::1".parse().unwrap(), 64), "ip:~"),
            (ClientKey::unknown(), "ip:~"),
            (ClientKey::user("ada"), "user:~"),
            (ClientKey::account("ada").unwrap(), "account:~"),
            (ClientKey::header(&request, "x-tenant"), "header:x-tenant:~"),
            (ClientKey::header(&request, "x-other"), "header:x-other:~"),
            (ClientKey::custom(None), "custom:~"),
        ] {
            let hidden = secret.hide(key.as_str());
            let code = hidden.strip_prefix(kind).expect(kind);
            assert!(
                code.len() == 32 && code.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{hidden}"
            );
        }
        assert!(secret.hide("a}:b").starts_with("other:~"));
        assert_eq!(secret.hide(ClientKey::global().as_str()), "global");
    }

    #[test]
    fn another_secret_is_another_key() {
        let (one, two) = (secret("0123456789abcdef"), secret("0123456789abcdeg"));
        let user = ClientKey::user("ada");
        assert_ne!(one.hide(user.as_str()), two.hide(user.as_str()));
        assert_ne!(one, two);
        assert_eq!(one, secret("0123456789abcdef"));
    }

    #[test]
    fn short_secrets_are_refused_and_none_is_shown() {
        assert_eq!(KeySecret::new(b"hunter2"), Err(InvalidKeySecret(7)));
        assert_eq!(format!("{:?}", secret("hunter2-hunter2-hunter2")), "KeySecret(…)");
    }
}
