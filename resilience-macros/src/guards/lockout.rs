//! `lockout(5, "15m", key = …)`.

use proc_macro2::{Group, Ident};
use syn::{Error, Result};

use super::{MODES, ON_OUTAGE, choice, option};
use crate::{
    args::{Arguments, Value},
    errors::{self, Errors},
    model::{Lockout, LockoutKey, OnOutage, Policy},
    value,
};

const OPTIONS: [&str; 5] = ["key", "on_outage", "name", "deadline", "mode"];

/// The words of a key, and how they are written.
const KEYS: [&str; 3] = ["ip", "user", "account"];
const KEY_FORMS: [&str; 3] = ["ip", "user", "account(\"json:/username\")"];

impl Policy {
    pub(super) fn lockout(&mut self, guard: &Ident, list: &Group, errors: &mut Errors) -> Option<Lockout> {
        let mut arguments = Arguments::parse(guard, list, 2, &OPTIONS, errors);
        let (attempts, durations) = (arguments.next(), arguments.next());
        if durations.is_none() {
            errors.push(Error::new(
                arguments.span,
                "`lockout` needs a number of attempts and how long a lock lasts: write \
                 `lockout(5, \"15m\", key = account(\"json:/username\"))`",
            ));
        }
        if !arguments.mentions("key") {
            self.keyless.push(arguments.span);
        }
        // All are read before any may leave: a mistake in one must not hide one in another.
        let key = option(&arguments, "key", key, errors);
        if key == Some(LockoutKey::User) {
            let word = arguments.option("key").and_then(Value::word);
            self.user_keys.extend(word.map(|word| word.span()));
        }
        let name = match arguments.option("name") {
            Some(value) => errors.keep(value::name(value)).map(Some),
            None => Some(None),
        };
        let on_outage = choice(&arguments, "on_outage", &ON_OUTAGE, errors).unwrap_or(OnOutage::Closed);
        let deadline = option(&arguments, "deadline", value::deadline, errors);
        let mode = choice(&arguments, "mode", &MODES, errors).unwrap_or_default();
        let attempts = attempts.and_then(|value| errors.keep(value::attempts(&value)));
        let durations = durations.and_then(|value| errors.keep(value::lock_durations(&value)));
        Some(Lockout {
            attempts: attempts?,
            durations: durations?,
            key: key?,
            on_outage,
            name: name?,
            deadline,
            mode,
            span: guard.span(),
        })
    }
}

fn key(value: &Value) -> Result<LockoutKey> {
    let call = value.call();
    let word = match &call {
        Some((word, _)) => Some(word.clone()),
        None => value.word(),
    };
    match (word.map(|word| word.to_string()).as_deref(), &call) {
        (Some("ip"), None) => Ok(LockoutKey::Ip),
        (Some("user"), None) => Ok(LockoutKey::User),
        (Some("account"), Some((_, source))) => account(source),
        (Some("account"), None) => Err(value.error(
            "`account` needs its place in the body: write `key = account(\"json:/username\")` or \
             `key = account(\"form:username\")`",
        )),
        (Some("global"), _) => Err(value.error(
            "a lockout of everybody is a switch in the hands of whoever fails to log in: anybody could lock all others \
             out; write `key = account(…)` or `key = ip`",
        )),
        (Some("header"), _) => Err(value.error(
            "anybody can put any value into a header, and so begin a new tally with every guess: write \
             `key = account(…)` or `key = ip`",
        )),
        (Some(word), Some(_)) => Err(value.error(format!(
            "unknown key `{word}`: {}",
            errors::advice_on(word, &KEYS, &KEY_FORMS)
        ))),
        _ => value::path_key(value, &KEYS, &KEY_FORMS).map(LockoutKey::Custom),
    }
}

/// `"json:/username"` or `"form:username"`.
fn account(source: &Value) -> Result<LockoutKey> {
    let text = match source.word() {
        Some(word) => word.to_string(),
        None => value::text(source, "the account's place", "json:/username")?.value(),
    };
    if let Some(pointer) = text.strip_prefix("json:") {
        return match not_a_pointer(pointer) {
            None => Ok(LockoutKey::Json(pointer.to_owned())),
            Some(why) => Err(source.error(why)),
        };
    }
    match text.strip_prefix("form:") {
        Some("") => Err(source.error("a form's field has a name: write `account(\"form:username\")`")),
        Some(field) => Ok(LockoutKey::Form(field.to_owned())),
        None => Err(source.error(format!(
            "an account stands in a JSON body or in a form: write \"json:/{0}\" or \"form:{0}\"",
            Some(text.trim_matches('/'))
                .filter(|text| !text.is_empty())
                .unwrap_or("username")
        ))),
    }
}

/// Why this is no JSON pointer (RFC 6901) to a part of a document.
fn not_a_pointer(pointer: &str) -> Option<String> {
    if pointer.is_empty() {
        return Some(
            "the empty JSON pointer is the whole body, and an account is one text in it: write \"json:/username\""
                .into(),
        );
    }
    if !pointer.starts_with('/') {
        return Some(format!("a JSON pointer begins with a slash: write \"json:/{pointer}\""));
    }
    let escapes = pointer.split('~').skip(1);
    let bad = escapes.into_iter().any(|after| !after.starts_with(['0', '1']));
    bad.then(|| {
        "in a JSON pointer `~0` stands for `~` and `~1` for `/`, and `~` stands before nothing else (RFC 6901)".into()
    })
}
