//! Who may order breakers about.

use std::{fmt, future::ready};

use poem::{
    Request,
    http::{HeaderMap, header},
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    guard::{BoxError, BoxFuture},
    sharing::operator::AUTHOR_BYTES,
};

/// Fewest bytes that a token may have.
const TOKEN_MIN: usize = 16;

/// Says who a request comes from, if that is somebody who may order breakers about.
///
/// A function or closure is one, if it need not wait:
///
/// ```
/// use poem::Request;
/// use resilience::{Identity, sharing::admin::{Author, Denied, OperatorCheck}};
///
/// /// Where an `auth` guard further out has verified the caller.
/// fn operators(request: &Request) -> Result<Author, Denied> {
///     match Identity::of(request) {
///         Some(Identity(user)) if ["ada", "grace"].contains(&&**user) => Ok(Author::new(user)),
///         Some(_) => Err(Denied::Forbidden),
///         None => Err(Denied::Unknown),
///     }
/// }
/// # fn check(_: impl OperatorCheck) {}
/// # check(operators);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say who may order breakers about",
    label = "no check of who is asking",
    note = "`BearerToken::new(author, token)` is one, and so is any `fn(&Request) -> Result<Author, Denied>`"
)]
pub trait OperatorCheck: Send + Sync + 'static {
    /// Who sends this request.
    ///
    /// # Errors
    ///
    /// [`Denied`] says why nobody is let in.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after 5 seconds, or with the request.
    fn author<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Author, Denied>>;

    /// The `WWW-Authenticate` of a 401, visible ASCII. Default: `Bearer`.
    fn challenge(&self) -> &str {
        "Bearer"
    }
}

impl<F: Fn(&Request) -> Result<Author, Denied> + Send + Sync + 'static> OperatorCheck for F {
    fn author<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Author, Denied>> {
        // Inside of the future, where a panic is caught.
        Box::pin(async move { self(request) })
    }
}

/// Who gives an order: what the log and the breaker's status show. From 1 to 128 bytes, or nobody is let in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Author(pub(super) String);

impl Author {
    /// An operator of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// Why nobody is let in.
#[derive(Debug)]
#[non_exhaustive]
pub enum Denied {
    /// It is not known who sends this: 401 `not_an_operator`.
    Unknown,
    /// It is somebody who may not do this: 403 `not_an_operator`.
    Forbidden,
    /// It cannot be checked now: 503 `auth_unavailable`. The log says why.
    Unavailable(BoxError),
}

/// Whoever sends `Authorization: Bearer <token>` is the operator. Compared in constant time, and not kept in clear.
#[derive(Clone)]
pub struct BearerToken {
    author: Author,
    digest: [u8; 32],
}

impl BearerToken {
    /// Whoever has `token` is `author`.
    ///
    /// # Errors
    ///
    /// For a token of fewer than 16 bytes, or of others than visible ASCII, and for an author of none or more than 128.
    pub fn new(author: impl Into<String>, token: impl AsRef<str>) -> Result<Self, InvalidToken> {
        let (author, token) = (author.into(), token.as_ref());
        if token.len() < TOKEN_MIN {
            return Err(InvalidToken("a token must have at least 16 bytes"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken("a token must be of visible ASCII characters"));
        }
        if !AUTHOR_BYTES.contains(&author.len()) {
            return Err(InvalidToken("a token's author must have 1 to 128 bytes"));
        }
        Ok(Self {
            author: Author(author),
            digest: Sha256::digest(token).into(),
        })
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (sent.next(), sent.next()) else {
            return false;
        };
        let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
            return false;
        };
        // Digests have one length, so that not even the token's shows.
        let digest: [u8; 32] = Sha256::digest(token.trim_matches(' ')).into();
        scheme.eq_ignore_ascii_case("bearer") && bool::from(digest.ct_eq(&self.digest))
    }
}

impl OperatorCheck for BearerToken {
    fn author<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Author, Denied>> {
        let admitted = self.admits(request.headers());
        Box::pin(ready(if admitted {
            Ok(self.author.clone())
        } else {
            Err(Denied::Unknown)
        }))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerToken")
            .field("author", &self.author.0)
            .finish_non_exhaustive()
    }
}

/// Why a token is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidToken(&'static str);

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn admits(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().expect("a header value"));
        }
        BearerToken::new("ada", TOKEN)
            .expect("it is long enough")
            .admits(&headers)
    }

    #[test]
    fn only_the_whole_token_is_let_in() {
        for good in [
            "Bearer 0123456789abcdef",
            "bearer 0123456789abcdef",
            "BEARER  0123456789abcdef ",
        ] {
            assert!(admits(&[good]), "{good}");
        }
        for bad in [
            &[][..],
            &[""],
            &["Bearer"],
            &["Bearer "],
            &["0123456789abcdef"],
            &["Basic 0123456789abcdef"],
            &["Bearer 0123456789abcde"],
            &["Bearer 0123456789abcdef0"],
            &["Bearer 0123456789ABCDEF"],
            &["Bearer 0123456789abcdef, Bearer 0123456789abcdef"],
            &["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"],
            &["Bearer\t0123456789abcdef"],
        ] {
            assert!(!admits(bad), "{bad:?}");
        }
    }

    #[test]
    fn weak_tokens_are_refused_and_none_is_shown() {
        for (author, token) in [
            ("ada", ""),
            ("ada", "0123456789abcde"),
            ("ada", "0123456789 abcdef"),
            ("ada", "0123456789abcdéf"),
            ("", TOKEN),
            (&"a".repeat(129), TOKEN),
        ] {
            assert!(BearerToken::new(author, token).is_err(), "{author} {token}");
        }
        let shown = format!("{:?}", BearerToken::new("ada", TOKEN).expect("it is long enough"));
        assert!(shown.contains("ada") && !shown.contains(TOKEN), "{shown}");
    }
}
