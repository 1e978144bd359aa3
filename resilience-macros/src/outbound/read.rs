//! Entries to the model, option by option.

use std::{num::NonZeroU32, time::Duration};

use proc_macro2::{Group, Ident};
use syn::{Error, ExprPath, Result};

use super::model::{Bulkhead, Outbound, Retry, Set};
use crate::{
    args::{Arguments, Entry, Value},
    errors::{self, Errors},
    value::{self, Name},
};

impl Outbound {
    /// Reads the entries of an attribute.
    pub(crate) fn parse(entries: Vec<Entry>, errors: &mut Errors) -> Self {
        let mut outbound = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        for entry in entries {
            if let Entry::Assigned(name, _) | Entry::Called(name, _) = &entry {
                let known = FORMS.iter().any(|(option, _)| name == option);
                if known && seen.contains(name) {
                    errors.push(Error::new(
                        name.span(),
                        format!("`{name}` stands twice, but a call has only one: keep one of them"),
                    ));
                }
                seen.push(name.clone());
            }
            outbound.read(entry, errors);
        }
        outbound
    }

    fn read(&mut self, entry: Entry, errors: &mut Errors) {
        match entry {
            Entry::Assigned(name, value) => match &*name.to_string() {
                "breaker" => self.breaker = Some(set(value, breaker, errors)),
                "timeout" => self.timeout = Some(set(value, |value| timeout(value, "timeout"), errors)),
                "attempt_timeout" => {
                    let read = |value: &Value| timeout(value, "timeout of an attempt");
                    self.attempt_timeout = Some(set(value, read, errors));
                }
                "fallback" => {
                    let shape = "an `async fn(E) -> Result<T, E>`, which answers in the place of an error";
                    self.fallback = Some(set(value, |value| path(value, "fallback", shape), errors));
                }
                "classify" => {
                    let shape = "a `fn(Result<&T, &E>) -> Verdict`, which judges an answer";
                    self.classify = Some(set(value, |value| path(value, "classify", shape), errors));
                }
                _ => misplaced(&name, errors),
            },
            Entry::Called(name, list) => match &*name.to_string() {
                "retry" => self.retry = Some(retry(&name, &list, errors)),
                "bulkhead" => self.bulkhead = Some(bulkhead(&name, &list, errors)),
                _ => misplaced(&name, errors),
            },
            Entry::Bare(value) => match value.word() {
                Some(name) => misplaced(&name, errors),
                None => errors.push(value.error(format!("expected an option, one of {}", errors::list(&names())))),
            },
        }
    }
}

/// How each option is written, for messages.
const FORMS: [(&str, &str); 7] = [
    ("breaker", r#"breaker = "payments""#),
    ("timeout", r#"timeout = "500ms""#),
    ("attempt_timeout", r#"attempt_timeout = "200ms""#),
    ("retry", "retry(3)"),
    ("bulkhead", "bulkhead(16)"),
    ("fallback", "fallback = path::to::fallback"),
    ("classify", "classify = path::to::classify"),
];

/// Words that are right elsewhere, and what to write here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("deadline", "the time of a call is written `timeout = \"500ms\"`"),
    ("concurrency", "calls in flight are bounded with `bulkhead(16)`"),
    (
        "backoff",
        "it belongs to the retries: write `retry(3, backoff = \"50ms\")`",
    ),
    (
        "max_backoff",
        "it belongs to the retries: write `retry(3, max_backoff = \"2s\")`",
    ),
    (
        "budget",
        "it belongs to the retries: write `retry(3, budget = \"payments\")`",
    ),
    ("queue", "it belongs to the bulkhead: write `bulkhead(16, queue = 8)`"),
    (
        "queue_timeout",
        "it belongs to the bulkhead: write `bulkhead(16, queue = 8, queue_timeout = \"50ms\")`",
    ),
    (
        "name",
        "a dependency is named by its breaker: write `breaker = \"payments\"`",
    ),
    (
        "rate_limit",
        "the attribute has no quota for calls to others: build a `Pipeline` with `.rate_limit(…)`",
    ),
];

const RETRY_OPTIONS: [&str; 3] = ["backoff", "max_backoff", "budget"];

const BULKHEAD_OPTIONS: [&str; 3] = ["queue", "queue_timeout", "name"];

/// More retries than this are a job that never ends, and no call.
const MAX_RETRIES: u32 = 20;

/// As the runtime has it.
const MAX_PLACES: u32 = 1 << 20;

const HOUR: Duration = Duration::from_secs(60 * 60);
const TEN_MINUTES: Duration = Duration::from_secs(10 * 60);

/// The names of the breakers before the store, and of the choices among them.
const TAKEN: [&str; 7] = [
    "shared",
    "per_operation",
    "store",
    "auth",
    "flag",
    "rate_limit",
    "lockout",
];

fn names() -> [&'static str; 7] {
    FORMS.map(|(name, _)| name)
}

/// Notes an option in the wrong form, or a word that is no option.
fn misplaced(name: &Ident, errors: &mut Errors) {
    let word = name.to_string();
    let find = |table: &[(&str, &'static str)]| {
        table
            .iter()
            .find_map(|(option, text)| (*option == word).then_some(*text))
    };
    let message = match (find(&FORMS), find(&ELSEWHERE)) {
        (Some(form), _) => format!("`{name}` is not written like this: write `{form}`"),
        (_, Some(instead)) => format!("`#[outbound]` has no option `{word}`: {instead}"),
        _ => format!("unknown option `{word}`: {}", errors::advice(&word, &names())),
    };
    errors.push(Error::new(name.span(), message));
}

fn retry(name: &Ident, list: &Group, errors: &mut Errors) -> Retry {
    let mut arguments = Arguments::parse(name, list, 1, &RETRY_OPTIONS, errors);
    let retries = match arguments.next() {
        Some(value) => errors.keep(retries(&value)),
        None => {
            errors.push(Error::new(
                arguments.span,
                "`retry` needs a number: write `retry(3)` for up to three attempts after the first one",
            ));
            None
        }
    };
    Retry {
        retries,
        backoff: option(&arguments, "backoff", |value| timeout(value, "backoff"), errors),
        max_backoff: option(&arguments, "max_backoff", |value| timeout(value, "backoff"), errors),
        budget: option(&arguments, "budget", value::name, errors),
        span: name.span(),
    }
}

fn bulkhead(name: &Ident, list: &Group, errors: &mut Errors) -> Bulkhead {
    let mut arguments = Arguments::parse(name, list, 1, &BULKHEAD_OPTIONS, errors);
    let limit = match arguments.next() {
        Some(value) => errors.keep(places(
            &value,
            "bulkhead",
            "16",
            "would let no call through: write 1 or more",
        )),
        None => {
            errors.push(Error::new(
                arguments.span,
                "`bulkhead` needs a number: write `bulkhead(16)` for at most 16 calls in flight",
            ));
            None
        }
    };
    let queue = |value: &Value| places(value, "queue", "8", "holds nobody: write 1 or more, or remove `queue`");
    let queue_timeout = |value: &Value| {
        value::bounded(
            value,
            "queue timeout",
            value::duration(value)?,
            TEN_MINUTES,
            "10 minutes",
        )
    };
    if let Some(value) = arguments.option("queue_timeout")
        && !arguments.mentions("queue")
    {
        errors.push(
            value.error("`queue_timeout` bounds the wait in a queue, and there is none: add `queue = 8`, or remove it"),
        );
    }
    Bulkhead {
        limit,
        queue: option(&arguments, "queue", queue, errors),
        queue_timeout: option(&arguments, "queue_timeout", queue_timeout, errors),
        name: option(&arguments, "name", value::name, errors),
    }
}

fn set<T>(written: Value, read: impl Fn(&Value) -> Result<T>, errors: &mut Errors) -> Set<T> {
    Set {
        parsed: errors.keep(read(&written)),
        written,
    }
}

fn option<T>(
    arguments: &Arguments,
    name: &str,
    read: impl Fn(&Value) -> Result<T>,
    errors: &mut Errors,
) -> Option<Set<T>> {
    arguments.option(name).map(|value| set(value.clone(), read, errors))
}

/// 1 to 20 attempts after the first one.
fn retries(value: &Value) -> Result<NonZeroU32> {
    let zero = "retries nothing: write 1 or more, or remove `retry`";
    let retries = value::count(value, "retry count", "retries", "3", zero)?;
    if retries.get() > MAX_RETRIES {
        return Err(value.error(format!(
            "so many retries keep up the load on what is down, and their caller waiting: write at most {MAX_RETRIES}"
        )));
    }
    Ok(retries)
}

/// 1 to 1,048,576 calls.
fn places(value: &Value, what: &str, example: &str, zero: &str) -> Result<NonZeroU32> {
    let places = value::count(value, what, "calls", example, zero)?;
    if places.get() > MAX_PLACES {
        return Err(value.error(format!(
            "a {what} of {places} bounds nothing: write at most {MAX_PLACES}"
        )));
    }
    Ok(places)
}

/// 1 ms to 1 h.
fn timeout(value: &Value, what: &str) -> Result<Duration> {
    value::bounded(value, what, value::duration(value)?, HOUR, "1 hour")
}

/// The path of a fn; closures would hide what a call answers with in the middle of an attribute.
fn path(value: &Value, option: &str, shape: &str) -> Result<ExprPath> {
    syn::parse2(value.tokens()).map_err(|_| value.error(format!("`{option}` takes the path of {shape}")))
}

fn breaker(value: &Value) -> Result<Name> {
    let name = value::name(value)?;
    let skeleton = errors::skeleton(name.as_str());
    match TAKEN.iter().find(|taken| errors::skeleton(taken) == skeleton) {
        Some(taken) => Err(value.error(format!(
            "`{taken}` is taken by the breakers before the store: name the dependency that is called, such as \"payments\""
        ))),
        None => Ok(name),
    }
}
