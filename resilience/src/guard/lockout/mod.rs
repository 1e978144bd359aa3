//! Attempts to log in, counted before the handler verifies anything.
//!
//! In two stages: tallies that are known without the body, then those of accounts. A locked address costs no look at the
//! body, and a body that names no account still counts against its address.

mod account;
mod attempts;
mod body;
mod bound;
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
};
use super::auth::Identity;
use crate::{client::ClientKey, error::Error, policy::LockoutKey, runtime::Runtime, trail::Trail};

/// Begins an attempt against each tally.
///
/// # Errors
///
/// The refusal of a locked tally, of one that nobody can read, or of a body that names no account. What was begun is given
/// back, but for a body's mistake: padding one must not be a way around the address's lock.
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
    for call in &lockouts.known {
        let attempt = |&lockout: &usize| {
            let subject = subject(lockouts.all[lockout].spec.key, runtime, request)?;
            Some(Counted::new(lockout, subject))
        };
        let attempts: Option<_> = call.lockouts.iter().map(attempt).collect();
        let named = attempts.ok_or_else(Error::account_unreadable);
        stage.ask_or_refuse(call, named).await?;
    }
    if lockouts.accounts.is_empty() {
        return Ok(stage.pending);
    }
    let statement = Statement::read(request, runtime.settings.login_body).await;
    for call in &lockouts.accounts {
        let named = match &statement {
            Ok(statement) => named(call, lockouts, statement),
            Err(mistake) => Err(mistake.clone()),
        };
        stage.ask_or_refuse(call, named).await?;
    }
    Ok(stage.pending)
}

/// Whose attempt it is, as far as that is known without the body. Nobody's, if a fn of the user's own says so: a tally of
/// all such requests would let anybody lock out all others.
fn subject(key: LockoutKey, runtime: &Runtime, request: &Request) -> Option<ClientKey> {
    Some(match key {
        LockoutKey::Ip => runtime.settings.callers.subject(request),
        // The compiler has refused `key = user` without `auth`, which has been asked by now.
        LockoutKey::User => ClientKey::user(Identity::of(request).map_or("", |user| &user.0)),
        LockoutKey::Custom(key) => ClientKey::custom(Some(&key.of(request)?)),
        LockoutKey::Account(_) => unreachable!("accounts are a stage of their own"),
    })
}

/// The attempts against the accounts that the request names: all of a call's, or a mistake.
fn named(call: &Call, lockouts: &Lockouts, statement: &Statement) -> Result<Vec<Counted>, Error> {
    let attempt = |&lockout: &usize| {
        let account = statement.account(lockouts.all[lockout].place.as_ref()?)?;
        Some(Counted::new(lockout, ClientKey::account(&account).ok()?))
    };
    let attempts: Option<_> = call.lockouts.iter().map(attempt).collect();
    attempts.ok_or_else(Error::account_unreadable)
}
