//! Rules across guards, and between the guards and the fn.

use std::collections::HashSet;

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, GenericParam, PathArguments, Type};

use crate::{
    errors::Errors,
    handler::Handler,
    model::{LockoutKey, Policy},
};

/// Notes what a policy says twice, or says without what it needs.
pub(crate) fn policy(policy: &Policy, errors: &mut Errors) {
    let mut flags = HashSet::new();
    for flag in &policy.flags {
        if !flags.insert(flag.name.as_str()) {
            errors.push(Error::new(
                flag.span,
                format!("the flag \"{}\" is asked twice: keep one of them", flag.name.as_str()),
            ));
        }
    }
    for (index, quota) in policy.rate_limits.iter().enumerate() {
        let earlier = &policy.rate_limits[..index];
        if let Some(name) = &quota.name
            && earlier.iter().any(|other| quota.shares_its_name(other))
        {
            errors.push(Error::new(
                quota.span,
                if quota.numbers.is_some() && earlier.iter().all(|other| other.numbers.is_some()) {
                    format!(
                        "two quotas named \"{}\" with the same window would share one count: keep one of them, or give \
                         them different names or windows",
                        name.as_str()
                    )
                } else {
                    format!(
                        "two quotas named \"{}\" would be one, wherever it is defined: keep one of them, or give them \
                         different names",
                        name.as_str()
                    )
                },
            ));
        } else if earlier.iter().any(|other| quota.repeats(other)) {
            errors.push(Error::new(
                quota.span,
                "this quota stands twice with the same limit, window and key: keep one of them",
            ));
        }
    }
    let mut guards = HashSet::new();
    for guard in &policy.guards {
        if !guards.insert(guard.to_token_stream().to_string()) {
            errors.push(Error::new_spanned(guard, "this guard stands twice: keep one of them"));
        }
    }
    lockouts(policy, errors);
    if let Some(priority) = policy.priority_word {
        match &policy.concurrency {
            None => errors.push(Error::new(
                priority,
                "`priority` says who waits longest for a slot, and this handler has none to wait for: add \
                 `concurrency(64, queue = 16)`, or remove it",
            )),
            Some(concurrency) if !concurrency.has_queue => errors.push(Error::new(
                priority,
                "`priority` is the order of a queue, and this `concurrency` has none: add `queue = 16` to it, or remove \
                 `priority`",
            )),
            Some(_) => {}
        }
    }
    // After a mistake a guard may be missing here that was written.
    let asks_the_store = policy.auth.is_some()
        || !policy.flags.is_empty()
        || !policy.rate_limits.is_empty()
        || !policy.lockouts.is_empty();
    if let Some(breaker) = policy.breaker_word
        && errors.is_empty()
        && !asks_the_store
    {
        errors.push(Error::new(
            breaker,
            "`breaker` chooses who stands before the store, and no guard here asks the store: add one, or remove it",
        ));
    }
    if policy.auth.is_none() {
        for key in &policy.user_keys {
            errors.push(Error::new(
                *key,
                "`key = user` needs a verified user: add `auth = \"fail_closed\"`, or count per address with `key = ip`",
            ));
        }
    }
}

fn reads_another_body(one: &LockoutKey, other: &LockoutKey) -> bool {
    matches!(
        (one, other),
        (LockoutKey::Json(_), LockoutKey::Form(_)) | (LockoutKey::Form(_), LockoutKey::Json(_))
    )
}

/// Notes lockouts that do not say whose attempts count, or count them twice.
fn lockouts(policy: &Policy, errors: &mut Errors) {
    let advice = if policy.auth.is_some() {
        "a verified user and the account that is logged in to are both known here, so say whose attempts count: \
         `key = user`, `key = account(\"json:/username\")` or `key = ip`"
    } else {
        "say whose attempts count: `key = account(\"json:/username\")`, `key = ip`, or one lockout for each of the two"
    };
    for keyless in &policy.keyless {
        errors.push(Error::new(*keyless, format!("`lockout` needs a key: {advice}")));
    }
    for (index, lockout) in policy.lockouts.iter().enumerate() {
        let earlier = &policy.lockouts[..index];
        if earlier.iter().any(|other| other.key == lockout.key) {
            errors.push(Error::new(
                lockout.span,
                "two lockouts with the same key would count each attempt twice: keep one of them; locks that grow are \
                 several durations of one lockout, such as \"1m, 5m, 15m, 1h\"",
            ));
        } else if earlier.iter().any(|other| reads_another_body(&other.key, &lockout.key)) {
            errors.push(Error::new(
                lockout.span,
                "a body is JSON or a form, and never both, so that no request would get past these two lockouts: write \
                 one handler for each",
            ));
        } else if let Some(name) = &lockout.name
            && earlier.iter().any(|other| other.name == lockout.name)
        {
            errors.push(Error::new(
                lockout.span,
                format!(
                    "two lockouts named \"{}\" would share one tally: give them different names",
                    name.as_str()
                ),
            ));
        }
    }
}

/// Notes a fn that is no guarded handler, or one whose parameters the policy cannot serve.
pub(crate) fn handler(handler: &Handler, policy: &Policy, errors: &mut Errors) {
    for again in &handler.attributes.resilient {
        errors.push(Error::new_spanned(
            again,
            "this handler has a `#[resilient]` already: put all guards into one attribute",
        ));
    }
    if let Some(receiver) = handler.sig.receiver() {
        errors.push(Error::new_spanned(
            receiver,
            "`#[resilient]` guards a free fn, and poem's handlers have no `self`: take state as `Data<&State>`",
        ));
    } else if handler.attributes.handler.is_empty() {
        errors.push(Error::new(
            handler.name().span(),
            "no `#[handler]` under `#[resilient]`: if it is missing, add poem's `#[handler]` between the two; if it \
             stands above, move it below, so that the guards answer before anything is extracted",
        ));
    }
    for parameter in handler.foreign_generics() {
        let advice = match parameter {
            GenericParam::Const(_) => "constants: take the value as `Data<…>`, or write one handler for each value",
            _ => "lifetimes: leave them out, since elided ones work",
        };
        let message = format!("poem's `#[handler]` is not generic over {advice}");
        errors.push(Error::new_spanned(parameter, message));
    }
    if policy.auth.is_none() {
        for extractor in handler.extractors().filter(|extractor| is_identity(extractor)) {
            errors.push(Error::new_spanned(
                extractor,
                "`Identity` needs a verified user: add `auth = \"fail_closed\"`, or take `Option<Identity>`",
            ));
        }
    }
}

/// Notes an attribute that guards nothing.
pub(crate) fn empty(errors: &mut Errors) {
    errors.push(Error::new(
        Span::call_site(),
        "this attribute guards nothing: name a guard, such as `#[resilient(rate_limit(30, 60))]`, or remove it",
    ));
}

/// Whether this is the extractor that refuses requests with no verified user, judged by its name.
fn is_identity(ty: &Type) -> bool {
    match ty {
        Type::Group(group) => is_identity(&group.elem),
        Type::Paren(paren) => is_identity(&paren.elem),
        Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Identity" && matches!(last.arguments, PathArguments::None)),
        _ => false,
    }
}
