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

use std::sync::Arc;

use poem::Request;

pub use self::outcome::LoginOutcome;
use self::{attempts::Counted, bound::Call, stage::Stage};
pub(crate) use self::{
    attempts::Pending,
    body::BodyBounds,
    bound::{BoundLockout, Lockouts, key_kind},
};
use super::auth::Identity;
use crate::{
    client::ClientKey,
    error::Error,
    policy::{LockoutKey, Mode},
    runtime::Runtime,
    trail::Trail,
};

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
            let subject = subject(lockouts.all[lockout].spec.key, runtime, request);
            Counted::new(lockout, subject)
        };
        stage.ask(call, call.lockouts.iter().map(attempt).collect()).await?;
    }
    if lockouts.accounts.is_empty() {
        return Ok(stage.pending);
    }
    let body = body::read(request, runtime.settings.login_body).await;
    for call in &lockouts.accounts {
        let named = match &body {
            Ok(body) => named(call, lockouts, body),
            Err(mistake) => Err(mistake.clone()),
        };
        match (named, call.mode) {
            (Ok(attempts), _) => stage.ask(call, attempts).await?,
            (Err(mistake), Mode::Enforce) => {
                stage.pending.keep();
                return Err(mistake);
            }
            (Err(_), Mode::Observe) => stage.would_have_refused(call),
        }
    }
    Ok(stage.pending)
}

/// Whose attempt it is, as far as that is known without the body.
fn subject(key: LockoutKey, runtime: &Runtime, request: &Request) -> ClientKey {
    match key {
        LockoutKey::Ip => runtime.settings.callers.subject(request),
        // The compiler has refused `key = user` without `auth`, which has been asked by now.
        LockoutKey::User => ClientKey::user(Identity::of(request).map_or("", |user| &user.0)),
        LockoutKey::Custom(key) => ClientKey::custom(key.of(request).as_deref()),
        LockoutKey::Account(_) => unreachable!("accounts are a stage of their own"),
    }
}

/// The attempts against the accounts that the body names: all of a call's, or a mistake.
fn named(call: &Call, lockouts: &Lockouts, body: &[u8]) -> Result<Vec<Counted>, Error> {
    let attempt = |&lockout: &usize| {
        let account = lockouts.all[lockout].place.as_ref()?.account(body)?;
        Some(Counted::new(lockout, ClientKey::account(&account).ok()?))
    };
    let attempts: Option<_> = call.lockouts.iter().map(attempt).collect();
    attempts.ok_or_else(Error::account_unreadable)
}
