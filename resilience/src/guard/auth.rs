//! Authentication. It fails closed, always: a caller who cannot be verified does not get in.

use std::fmt;

use poem::{
    FromRequest, Request, RequestBody, Response, Result,
    error::ResponseError,
    http::{Extensions, HeaderName, StatusCode},
};

use super::{BoxError, BoxFuture};
use crate::{
    bound::BoundAuth,
    error::Error,
    observe::Answer,
    question::{Asked, Pending, Question},
    runtime::Runtime,
    store::{StoreError, StoreErrorKind},
    store_breaker::Operation,
};

/// Longest API key that is looked up, in bytes.
pub const API_KEY_MAX: usize = 512;

/// The verified caller, as an extractor.
///
/// ```
/// use poem::{get, handler};
/// use resilience::{Identity, resilient};
///
/// #[resilient(auth = "fail_closed")]
/// #[handler]
/// async fn whoami(Identity(user): Identity) -> String {
///     user
/// }
/// # let _endpoint = get(whoami);
/// ```
///
/// `Option<Identity>` is for handlers that also serve anonymous callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub String);

impl Identity {
    /// The caller whom this request's `auth` has verified.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }
}

impl<'a> FromRequest<'a> for Identity {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        match Self::of(request) {
            Some(identity) => Ok(identity.clone()),
            None => Err(Unverified(request.uri().path().to_owned()).into()),
        }
    }
}

/// No identity for the handler at this path. A mistake of the service's only once it is answered with:
/// `Option<Identity>` makes `None` of it.
#[derive(Debug, thiserror::Error)]
#[error("nothing verified the caller of {0}")]
struct Unverified(String);

impl ResponseError for Unverified {
    fn status(&self) -> StatusCode {
        Error::identity_missing().http_status()
    }

    fn as_response(&self) -> Response {
        tracing::error!(
            path = self.0,
            "a handler takes an `Identity`, but nothing verified the caller: write `auth = \"fail_closed\"` in its \
             `#[resilient(…)]`"
        );
        Error::identity_missing().as_response()
    }
}

/// Verifies callers in place of the API-key look-up: sessions, tokens, client certificates.
///
/// Installed by [`Builder::authenticator`](crate::Builder::authenticator). It fails closed like the look-up: an error or
/// a missed deadline is 503 `auth_unavailable`.
///
/// ```
/// use poem::{Request, http::header};
/// use resilience::guard::{BoxFuture, auth::{AuthError, Authenticator, Verified}};
///
/// #[derive(Debug)]
/// struct Sessions;
///
/// impl Authenticator for Sessions {
///     fn authenticate<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verified, AuthError>> {
///         Box::pin(async move {
///             let token = request.header(header::AUTHORIZATION).ok_or(AuthError::Missing)?;
///             match token.strip_prefix("Bearer ") {
///                 Some("s3cret") => Ok(Verified::new("ada")),
///                 _ => Err(AuthError::Invalid),
///             }
///         })
///     }
///
///     fn challenge(&self) -> &'static str {
///         "Bearer"
///     }
/// }
/// ```
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Verifies the caller of this request.
    ///
    /// # Errors
    ///
    /// [`AuthError`] says whether the caller sent nothing, sent something wrong, or cannot be verified now.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the guard's deadline passes, or when an earlier guard refuses meanwhile.
    fn authenticate<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verified, AuthError>>;

    /// The `WWW-Authenticate` challenge of a 401, visible ASCII.
    fn challenge(&self) -> &'static str;
}

/// A verified caller, with whatever else the check found out.
#[derive(Clone, Debug)]
pub struct Verified {
    identity: Identity,
    extensions: Extensions,
}

impl Verified {
    /// The caller is this user.
    #[must_use]
    pub fn new(user: impl Into<String>) -> Self {
        Self {
            identity: Identity(user.into()),
            extensions: Extensions::new(),
        }
    }

    /// Hands more to the handler, which takes it with poem's `Data<&T>`: claims, scopes, a session.
    #[must_use]
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, data: T) -> Self {
        self.extensions.insert(data);
        self
    }

    /// Who the caller is.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Puts all of it where extractors find it.
    pub(crate) fn attach(self, request: &mut Request) {
        let extensions = request.extensions_mut();
        extensions.extend(self.extensions);
        extensions.insert(self.identity);
    }
}

/// Why a caller is not verified.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuthError {
    /// No credential was sent: 401 `missing_api_key`.
    Missing,
    /// The credential is wrong: 401 `invalid_api_key`.
    Invalid,
    /// It cannot be checked now: 503 `auth_unavailable`.
    Unavailable(BoxError),
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no credential was sent"),
            Self::Invalid => f.write_str("the credential is not valid"),
            Self::Unavailable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(&**error),
            _ => None,
        }
    }
}

/// A credential that no look-up can make good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Missing,
    Invalid,
}

/// The API key in `header`. Empty counts as missing; repeated, over-long and non-UTF-8 ones as invalid.
fn api_key<'a>(request: &'a Request, header: &HeaderName) -> Result<&'a str, Refusal> {
    let mut values = request.headers().get_all(header).iter();
    let value = values.next().ok_or(Refusal::Missing)?;
    if values.next().is_some() || value.len() > API_KEY_MAX {
        return Err(Refusal::Invalid);
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok("") => Err(Refusal::Missing),
        Ok(key) => Ok(key),
        Err(_) => Err(Refusal::Invalid),
    }
}

/// The guard's question, while it is on its way.
pub(crate) enum AuthQuestion<'a> {
    /// Decided by a look at the header.
    Refused(Refusal),
    ApiKey(Question<'a, Option<String>>),
    Other(Question<'a, Result<Verified, Refusal>>),
}

impl<'a> AuthQuestion<'a> {
    pub(crate) fn ask(runtime: &'a Runtime, auth: &'a BoundAuth, request: &'a Request, asked: Asked) -> Self {
        let within = auth.deadline;
        if let Some(authenticator) = &runtime.authenticator {
            return Self::Other(Question::of_other(asked, within, |_| {
                Box::pin(async move {
                    match authenticator.authenticate(request).await {
                        Ok(verified) => Ok(Ok(verified)),
                        Err(AuthError::Missing) => Ok(Err(Refusal::Missing)),
                        Err(AuthError::Invalid) => Ok(Err(Refusal::Invalid)),
                        Err(AuthError::Unavailable(error)) => {
                            Err(StoreError::new(StoreErrorKind::Answered, error.to_string()).with_source(error))
                        }
                    }
                })
            }));
        }
        match api_key(request, &auth.header) {
            Err(refusal) => Self::Refused(refusal),
            Ok(key) => Self::ApiKey(Question::of_store(&auth.breaker, asked, within, |deadline| {
                runtime.store.identity(key, deadline)
            })),
        }
    }

    pub(crate) fn pending(&mut self) -> Option<&mut dyn Pending> {
        match self {
            Self::Refused(_) => None,
            Self::ApiKey(question) => Some(question),
            Self::Other(question) => Some(question),
        }
    }

    /// Reads the verdict. Whatever the outage was, nobody gets in unverified.
    pub(crate) fn read(&mut self, runtime: &Runtime, auth: &BoundAuth, request: &Request) -> Result<Verified, Error> {
        let answer = match self {
            Self::Refused(refusal) => Ok(Err(*refusal)),
            Self::ApiKey(question) => {
                let answer = question.read();
                runtime.observer.note(Operation::Auth, &answer);
                answer.0.map(|user| user.map(Verified::new).ok_or(Refusal::Invalid))
            }
            Self::Other(question) => question.read().0,
        };
        match answer {
            Ok(Ok(verified)) => {
                runtime.note_standing(auth, request, true);
                auth.tally.count(Answer::Passed);
                Ok(verified)
            }
            Ok(Err(refusal)) => {
                runtime.note_standing(auth, request, false);
                auth.tally.count(Answer::Rejected);
                let error = match refusal {
                    Refusal::Missing => Error::missing_api_key(),
                    Refusal::Invalid => Error::invalid_api_key(),
                };
                Err(error.with_challenge(runtime.challenge.clone()))
            }
            Err(outage) if outage.is_shed() => {
                auth.tally.count(Answer::Shed);
                auth.complaints.about(&"auth", &outage);
                Err(Error::too_busy())
            }
            Err(outage) => {
                auth.tally.count(Answer::Unavailable);
                auth.complaints.about(&"auth", &outage);
                Err(Error::auth_unavailable().with_retry_after(runtime.settings.retry_after))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use poem::http::HeaderValue;

    use super::*;

    fn key_of(values: &[&[u8]]) -> Result<String, Refusal> {
        let mut request = Request::default();
        for value in values {
            let value = HeaderValue::from_bytes(value).expect("a header value");
            request.headers_mut().append("x-api-key", value);
        }
        api_key(&request, &HeaderName::from_static("x-api-key")).map(str::to_owned)
    }

    #[test]
    fn only_one_short_clear_key_is_looked_up() {
        assert_eq!(key_of(&[b"letmein"]), Ok("letmein".into()));
        assert_eq!(key_of(&[&[b'k'; API_KEY_MAX]]), Ok("k".repeat(API_KEY_MAX)));
        assert_eq!(key_of(&["schl\u{fc}ssel".as_bytes()]), Ok("schl\u{fc}ssel".into()));
        assert_eq!(key_of(&[]), Err(Refusal::Missing));
        assert_eq!(key_of(&[b""]), Err(Refusal::Missing));
        assert_eq!(key_of(&[&[b'k'; API_KEY_MAX + 1]]), Err(Refusal::Invalid));
        assert_eq!(key_of(&[b"letmein", b"letmein"]), Err(Refusal::Invalid));
        assert_eq!(key_of(&[b"", b"letmein"]), Err(Refusal::Invalid));
        assert_eq!(key_of(&[b"\xff\xfe"]), Err(Refusal::Invalid));
    }
}
