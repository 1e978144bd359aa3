//! Attempts to log in, counted before the handler verifies anything.
//!
//! In two stages: tallies that are known without the body, then those of accounts. A lock that this process remembers is
//! answered before the body is read. A body that names no account is refused before the store is asked. A request that does
//! not reach its handler was no attempt: nothing was verified.

mod account;
mod attempts;
mod body;
mod bound;
mod locked;
mod outcome;
mod stage;
mod statement;

use std::sync::Arc;

use poem::Request;

pub use self::outcome::LoginOutcome;
use self::{attempts::Counted, bound::Call, stage::Stage, statement::Statement};
pub(crate) use self::{
    attempts::Pending,
    body::BodyBounds,
    bound::{BoundLockout, Lockouts, key_kind},
    locked::Locked,
};
use super::auth::Identity;
use crate::{
    client::{self, ClientKey},
    error::Error,
    policy::LockoutKey,
    runtime::Runtime,
    store::lockout::tally::NO_ORIGIN,
    trail::Trail,
};

/// Begins an attempt against each tally.
///
/// # Errors
///
/// The refusal of a tally that is locked or has too many attempts under way, of one that cannot be read, or of a body that
/// names no account. Attempts that were begun are given back.
///
/// # Cancel safety
///
/// Dropped at any await it gives back what it has begun; the request's body may be lost.
pub(crate) async fn begin(
    runtime: &Arc<Runtime>,
    lockouts: &Arc<Lockouts>,
    request: &mut Request,
    trail: &mut Trail<'_>,
) -> Result<Pending, Error> {
    let mut stage = Stage {
        runtime,
        lockouts,
        pending: Pending::new(Arc::clone(runtime), Arc::clone(lockouts)),
        trail,
    };
    let source = Source::of(lockouts, runtime, request);
    let known = lockouts.known.iter();
    let known: Vec<Named<'_>> = known
        .map(|call| (call, known_of(call, runtime, lockouts, request, &source)))
        .collect();
    // A remembered lock is answered first, whichever stage it belongs to: the store is not asked about the other stage.
    stage.refuse_remembered(&known)?;
    let accounts = match lockouts.accounts.is_empty() {
        true => Vec::new(),
        false => accounts_of(runtime, lockouts, request, &source).await,
    };
    stage.refuse_remembered(&accounts)?;
    // Before the store is asked: a flood of requests without a credential costs it nothing.
    stage.refuse_mistakes(&accounts)?;
    for (call, named) in known.into_iter().chain(accounts) {
        stage.ask_or_refuse(call, named).await?;
    }
    Ok(stage.pending)
}

/// A call with its attempts, or with the mistake of a request that names no subject.
type Named<'a> = (&'a Call, Result<Vec<Counted>, Error>);

/// The attempts of a call against subjects that are known without the body.
fn known_of(
    call: &Call,
    runtime: &Runtime,
    lockouts: &Lockouts,
    request: &Request,
    source: &Source<'_>,
) -> Result<Vec<Counted>, Error> {
    let attempt = |&lockout: &usize| {
        let key = lockouts.all[lockout].spec.key;
        let origin = match key {
            LockoutKey::User => source.origin(user(request)),
            // Success clears no tally of these.
            _ => NO_ORIGIN,
        };
        Some(Counted::new(lockout, subject(key, runtime, request)?, origin))
    };
    let attempts: Option<_> = call.lockouts.iter().map(attempt).collect();
    attempts.ok_or_else(Error::account_unreadable)
}

/// Whose attempt it is, as far as that is known without the body. Nobody's, if a fn of the user's own says so: a tally of
/// all such requests would let anybody lock out all others.
fn subject(key: LockoutKey, runtime: &Runtime, request: &Request) -> Option<ClientKey> {
    Some(match key {
        LockoutKey::Ip => runtime.settings.callers.subject(request),
        LockoutKey::User => ClientKey::user(user(request)),
        LockoutKey::Custom(key) => ClientKey::custom(Some(&key.of(request)?)),
        LockoutKey::Account(_) => unreachable!("accounts are a stage of their own"),
    })
}

/// The compiler has refused `key = user` without `auth`, which has been asked by now.
fn user(request: &Request) -> &str {
    Identity::of(request).map_or("", |user| &user.0)
}

/// The attempts against the accounts that the body names, which is read now.
async fn accounts_of<'a>(
    runtime: &Runtime,
    lockouts: &'a Lockouts,
    request: &mut Request,
    source: &Source<'_>,
) -> Vec<Named<'a>> {
    let statement = Statement::read(request, runtime.settings.login_body).await;
    let named = |call: &Call| {
        let statement = statement.as_ref().map_err(Clone::clone)?;
        let attempt = |&lockout: &usize| {
            let account = statement.account(lockouts.all[lockout].place.as_ref()?)?;
            let subject = ClientKey::account(&account).ok()?;
            Some(Counted::new(lockout, subject, source.origin(&account)))
        };
        let attempts: Option<_> = call.lockouts.iter().map(attempt).collect();
        attempts.ok_or_else(Error::account_unreadable)
    };
    lockouts.accounts.iter().map(|call| (call, named(call))).collect()
}

/// The part of an attempt's origin that all lockouts of a request share: which handler is called, and from which address.
///
/// An account's tally merges spellings, handlers that share a name, and all addresses. A success proves the password of one
/// account only, as this handler compares it, to this client: it must not buy guesses at other accounts or for others.
struct Source<'a> {
    path: &'a str,
    address: Option<ClientKey>,
}

impl<'a> Source<'a> {
    fn of(lockouts: &'a Lockouts, runtime: &Runtime, request: &Request) -> Self {
        let is_needed = |lockout: &BoundLockout| matches!(lockout.spec.key, LockoutKey::Account(_) | LockoutKey::User);
        let is_needed = lockouts.all.iter().any(is_needed);
        Self {
            path: &lockouts.path,
            address: is_needed.then(|| runtime.settings.callers.subject(request)),
        }
    }

    /// Of an attempt at this account, spelled as in the request, or of this user.
    fn origin(&self, account: &str) -> u64 {
        let address = self.address.as_ref().map_or("", ClientKey::as_str);
        client::origin(&[self.path.as_bytes(), address.as_bytes(), account.as_bytes()])
    }
}
