//! Arguments to a policy, guard by guard.
//!
//! A new guard is a form in [`FORMS`], a line in [`Policy::read`] and a fn that reads its arguments.

mod concurrency;
mod lockout;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;

use proc_macro2::{Group, Ident};
use syn::{
    Error, ExprPath, Result, Token,
    parse::{ParseStream, Parser},
};

use crate::{
    args::{Arguments, Entry, Value},
    errors::{self, Errors},
    model::{Algorithm, Auth, Breaker, Flag, Key, Mode, Numbers, OnOutage, Policy, Priority, RateLimit},
    value,
};

impl Policy {
    /// Reads the entries of an attribute.
    pub(crate) fn parse(entries: Vec<Entry>, errors: &mut Errors) -> Self {
        let mut policy = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        for entry in entries {
            if let Entry::Assigned(name, _) | Entry::Called(name, _) = &entry {
                if ONCE.contains(&&*name.to_string()) && seen.contains(name) {
                    errors.push(Error::new(
                        name.span(),
                        format!("`{name}` stands twice, but a handler has only one: keep one of them"),
                    ));
                }
                seen.push(name.clone());
            }
            policy.read(entry, errors);
        }
        policy
    }

    fn read(&mut self, entry: Entry, errors: &mut Errors) {
        match entry {
            Entry::Assigned(name, value) => match &*name.to_string() {
                "auth" => self.auth = Some(auth(&value, errors)),
                "priority" => {
                    self.priority = errors.keep(value::word(&value, &PRIORITIES));
                    self.priority_word = Some(name.span());
                }
                "deadline" => self.deadline = errors.keep(value::deadline(&value)),
                "breaker" => {
                    self.breaker = errors.keep(breaker(&value));
                    self.breaker_word = Some(name.span());
                }
                _ => self.misplaced(&name, errors),
            },
            Entry::Called(name, list) => match &*name.to_string() {
                "auth" => self.auth = Some(auth_with_options(&name, &list, errors)),
                "flag" => self.flags.extend(flag(&name, &list, errors)),
                "rate_limit" => {
                    let limit = self.rate_limit(&name, &list, errors);
                    self.rate_limits.extend(limit);
                }
                "lockout" => {
                    let lockout = self.lockout(&name, &list, errors);
                    self.lockouts.extend(lockout);
                }
                "concurrency" => self.concurrency = Some(Self::concurrency(&name, &list, errors)),
                "guard" => self.guards.extend(errors.keep(guard(&name, &list))),
                _ => self.misplaced(&name, errors),
            },
            Entry::Bare(value) => match value.word() {
                Some(name) => self.misplaced(&name, errors),
                None => {
                    errors.push(value.error(format!("expected a guard, one of {}", errors::list(&guard_names()))));
                }
            },
        }
    }

    /// Notes a guard in the wrong form, or a word that is no guard.
    fn misplaced(&mut self, name: &Ident, errors: &mut Errors) {
        let word = name.to_string();
        errors.push(match FORMS.iter().find(|(guard, _)| *guard == word) {
            Some((_, form)) => Error::new(
                name.span(),
                format!("`{name}` is not written like this: write `{form}`"),
            ),
            None if concurrency::OPTIONS.contains(&&*word) => Error::new(
                name.span(),
                format!("`{word}` is an option of `concurrency`: write it in `concurrency(64, …)`"),
            ),
            None => {
                let advice = errors::advice(&word, &guard_names());
                Error::new(name.span(), format!("unknown guard `{word}`: {advice}"))
            }
        });
        // Nobody should be told to add the `auth` that is there but for a slip.
        if errors::nearest(&word, &guard_names()) == Some("auth") {
            self.auth.get_or_insert_default();
        }
    }

    fn rate_limit(&mut self, guard: &Ident, list: &Group, errors: &mut Errors) -> Option<RateLimit> {
        let mut arguments = Arguments::parse(guard, list, 2, &RATE_LIMIT_OPTIONS, errors);
        let (limit, window) = (arguments.next(), arguments.next());
        // A text that is no number is a name; `"30"` is a limit in quotes, which is told so below.
        let named = limit
            .as_ref()
            .filter(|limit| window.is_none() && value::is_name(limit))
            .cloned();
        if window.is_none() && named.is_none() {
            errors.push(Error::new(
                arguments.span,
                "`rate_limit` needs a limit and a window: write `rate_limit(30, 60)` for 30 requests in 60 seconds",
            ));
        }
        // What makes a quota the same as another has no stand-in: a mistake here must not pass for a repetition.
        let key = match arguments.option("key") {
            Some(value) => errors.keep(self::key(value)),
            None => Some(Key::default()),
        };
        if key == Some(Key::User) {
            let word = arguments.option("key").and_then(Value::word);
            self.user_keys.extend(word.map(|word| word.span()));
        }
        let name = match arguments.option("name") {
            Some(value) => errors.keep(value::quota_name(value)).map(Some),
            None => Some(None),
        };
        let algorithm = match arguments.option("algorithm") {
            Some(value) => errors.keep(value::word(value, &ALGORITHMS)),
            // One that was meant, but not written right, is unknown too.
            None => (!arguments.mentions("algorithm")).then(Algorithm::default),
        };
        let on_outage = match arguments.option("on_outage") {
            Some(value) => errors.keep(value::word(value, &ON_OUTAGE)),
            None => (!arguments.mentions("on_outage")).then(OnOutage::default),
        };
        // The definition of a name may say `fail_local`, whatever stands here.
        let local_share = local_share(&arguments, on_outage.filter(|_| named.is_none()), errors);
        let deadline = option(&arguments, "deadline", value::deadline, errors);
        let mode = choice(&arguments, "mode", &MODES, errors).unwrap_or_default();
        // All are read before any may leave: a mistake in one must not hide one in another.
        if let Some(named) = named {
            let is_rate = value::rate(&named).is_some();
            for option in ["name", "algorithm", "burst"] {
                // A rate is refused below, and such options are right beside the numbers that are meant.
                if let Some(value) = arguments.option(option).filter(|_| !is_rate) {
                    errors.push(value.error(defined_elsewhere(option)));
                }
            }
            let cost = option(&arguments, "cost", value::cost, errors);
            return Some(RateLimit {
                numbers: None,
                name: Some(errors.keep(value::quota(&named))?),
                key: key?,
                cost,
                on_outage: on_outage.unwrap_or_default(),
                local_share,
                deadline,
                mode,
                span: guard.span(),
            });
        }
        let limit = limit.and_then(|value| errors.keep(value::limit(&value)));
        let window = window.and_then(|value| errors.keep(value::window(&value)));
        let (burst, cost) = burst_and_cost(&arguments, limit, algorithm, errors);
        Some(RateLimit {
            numbers: Some(Numbers {
                limit: limit?,
                window: window?,
                algorithm: algorithm.unwrap_or_default(),
                burst,
            }),
            key: key?,
            cost,
            on_outage: on_outage.unwrap_or_default(),
            local_share,
            name: name?,
            deadline,
            mode,
            span: guard.span(),
        })
    }
}

/// How each guard is written, for messages.
const FORMS: [(&str, &str); 9] = [
    ("auth", r#"auth = "fail_closed""#),
    ("flag", r#"flag("checkout", default = false)"#),
    ("rate_limit", "rate_limit(30, 60)"),
    ("lockout", r#"lockout(5, "15m", key = account("json:/username"))"#),
    ("concurrency", "concurrency(64)"),
    ("priority", r#"priority = "default""#),
    ("deadline", r#"deadline = "2s""#),
    ("breaker", r#"breaker = "shared""#),
    ("guard", "guard(path::to::MY_GUARD)"),
];

/// Guards of which a handler has one at most.
const ONCE: [&str; 5] = ["auth", "concurrency", "priority", "deadline", "breaker"];

const RATE_LIMIT_OPTIONS: [&str; 9] = [
    "key",
    "algorithm",
    "burst",
    "cost",
    "on_outage",
    "local_share",
    "name",
    "deadline",
    "mode",
];

/// The words of a key, and how they are written.
const KEYS: [&str; 4] = ["ip", "user", "global", "header"];
const KEY_FORMS: [&str; 4] = ["ip", "user", "global", "header(\"…\")"];

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];

const PRIORITIES: [(&str, Priority); 3] = [
    ("critical", Priority::Critical),
    ("default", Priority::Default),
    ("background", Priority::Background),
];

const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("sliding_window", Algorithm::SlidingWindow),
    ("fixed_window", Algorithm::FixedWindow),
    ("token_bucket", Algorithm::TokenBucket),
];

const ON_OUTAGE: [(&str, OnOutage); 3] = [
    ("fail_open", OnOutage::Open),
    ("fail_closed", OnOutage::Closed),
    ("fail_local", OnOutage::Local),
];

/// Why an option has no place beside a name that stands alone.
fn defined_elsewhere(option: &str) -> String {
    match option {
        "name" => "the name stands first already: `rate_limit(\"api\")` is the quota of that name".to_owned(),
        _ => format!(
            "`{option}` belongs to the definition of the quota, which this name stands for: write it in the builder's \
             `.limit(…)` or in the file of quotas"
        ),
    }
}

fn guard_names() -> [&'static str; 9] {
    FORMS.map(|(name, _)| name)
}

fn option<T>(arguments: &Arguments, name: &str, parse: impl Fn(&Value) -> Result<T>, errors: &mut Errors) -> Option<T> {
    arguments.option(name).and_then(|value| errors.keep(parse(value)))
}

fn choice<T: Copy>(arguments: &Arguments, name: &str, words: &[(&str, T)], errors: &mut Errors) -> Option<T> {
    option(arguments, name, |value| value::word(value, words), errors)
}

/// Reads two numbers that the limit bounds. The limit or the algorithm is `None` after a mistake, and then bounds nothing.
fn burst_and_cost(
    arguments: &Arguments,
    limit: Option<NonZeroU32>,
    algorithm: Option<Algorithm>,
    errors: &mut Errors,
) -> (Option<NonZeroU32>, Option<NonZeroU32>) {
    let burst = option(arguments, "burst", value::burst, errors);
    if let Some(value) = arguments.option("burst") {
        match (algorithm, burst, limit) {
            (Some(Algorithm::SlidingWindow | Algorithm::FixedWindow), ..) => errors.push(
                value.error("only a token bucket has a burst: add `algorithm = \"token_bucket\"`, or remove `burst`"),
            ),
            (_, Some(burst), Some(limit)) if burst > limit => errors.push(value.error(format!(
                "a burst of {burst} would let more pass at once than the limit lets pass in a window: \
                 write at most {limit}"
            ))),
            _ => {}
        }
    }
    let cost = option(arguments, "cost", value::cost, errors);
    if let (Some(value), Some(cost)) = (arguments.option("cost"), cost) {
        let bounds = [("limit", limit), ("burst", burst)];
        let exceeded = bounds
            .into_iter()
            .find_map(|(what, bound)| bound.filter(|bound| cost > *bound).map(|bound| (what, bound)));
        if let Some((what, bound)) = exceeded {
            errors.push(value.error(format!(
                "a request that costs {cost} would never fit into a {what} of {bound}: write at most {bound}"
            )));
        }
    }
    (burst, cost)
}

/// Reads a share that means something only where this process counts.
fn local_share(arguments: &Arguments, on_outage: Option<OnOutage>, errors: &mut Errors) -> Option<u8> {
    let value = arguments.option("local_share")?;
    let share = errors.keep(value::percent(value));
    if matches!(on_outage, Some(OnOutage::Open | OnOutage::Closed)) {
        errors.push(value.error(
            "`local_share` says how much of the quota this process counts by itself in an outage, and only \
             `on_outage = \"fail_local\"` counts then: write that, or remove `local_share`",
        ));
    }
    share
}

fn auth(mode: &Value, errors: &mut Errors) -> Auth {
    errors.keep(fail_closed(mode));
    Auth::default()
}

fn auth_with_options(guard: &Ident, list: &Group, errors: &mut Errors) -> Auth {
    let mut arguments = Arguments::parse(guard, list, 1, &["header", "deadline"], errors);
    match arguments.next() {
        Some(mode) => {
            errors.keep(fail_closed(&mode));
        }
        None => errors.push(Error::new(
            arguments.span,
            "`auth` says what happens when nobody can be verified: write `auth(\"fail_closed\", …)`",
        )),
    }
    Auth {
        header: option(&arguments, "header", value::header_name, errors),
        deadline: option(&arguments, "deadline", value::deadline, errors),
    }
}

fn fail_closed(mode: &Value) -> Result<()> {
    let text = value::text(mode, "what `auth` does in an outage", "fail_closed")?.value();
    match errors::skeleton(&text).as_str() {
        _ if text == "fail_closed" => Ok(()),
        "failopen" => Err(mode.error(
            "an `auth` that fails open is an authentication bypass: whoever makes the store unreachable gets in \
             without a key; write `auth = \"fail_closed\"`, or drop `auth` if the handler is public",
        )),
        _ => Err(mode.error(format!(
            "unknown word `{text}`: write `auth = \"fail_closed\"`, the only safe answer"
        ))),
    }
}

fn flag(guard: &Ident, list: &Group, errors: &mut Errors) -> Option<Flag> {
    let options = ["default", "blocks_when", "stale", "deadline", "mode"];
    let mut arguments = Arguments::parse(guard, list, 1, &options, errors);
    let name = match arguments.next() {
        Some(value) => errors.keep(value::name(&value)),
        None => {
            errors.push(Error::new(
                arguments.span,
                "`flag` needs the flag's name: write `flag(\"checkout\", default = false)`",
            ));
            None
        }
    };
    if !arguments.mentions("default") {
        errors.push(Error::new(
            arguments.span,
            "`flag` needs a default, the value that counts while the store cannot be read: write `default = false`",
        ));
    }
    // Every option is read before a missing name may leave.
    let default = option(&arguments, "default", value::boolean, errors).unwrap_or_default();
    let blocks_when = choice(&arguments, "blocks_when", &[("on", true), ("off", false)], errors).unwrap_or(true);
    let stale = option(&arguments, "stale", value::stale, errors);
    let deadline = option(&arguments, "deadline", value::deadline, errors);
    let mode = choice(&arguments, "mode", &MODES, errors).unwrap_or_default();
    Some(Flag {
        name: name?,
        default,
        blocks_when,
        stale,
        deadline,
        mode,
        span: guard.span(),
    })
}

fn key(value: &Value) -> Result<Key> {
    if let Some((word, header)) = value.call()
        && word == "header"
    {
        return value::header_name(&header).map(Key::Header);
    }
    match value.word() {
        Some(word) if word == "ip" => Ok(Key::Ip),
        Some(word) if word == "user" => Ok(Key::User),
        Some(word) if word == "global" => Ok(Key::Global),
        Some(word) if word == "header" => {
            Err(value.error("`header` needs the header's name: write `key = header(\"x-tenant\")`"))
        }
        _ => value::path_key(value, &KEYS, &KEY_FORMS).map(Key::Custom),
    }
}

fn guard(guard: &Ident, list: &Group) -> Result<ExprPath> {
    if list.stream().is_empty() {
        return Err(Error::new(
            guard.span(),
            "`guard` needs the path of a guard: write `guard(path::to::MY_GUARD)`",
        ));
    }
    let one_path = |input: ParseStream<'_>| {
        let path = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        Ok(path)
    };
    one_path.parse2(list.stream()).map_err(|_| {
        Error::new_spanned(
            list.stream(),
            "`guard` takes the path of one static or constant: write `guard(path::to::MY_GUARD)`, once for each guard",
        )
    })
}

fn breaker(value: &Value) -> Result<Breaker> {
    let name = value::name(value)?;
    match (name.as_str(), errors::skeleton(name.as_str()).as_str()) {
        ("shared", _) => Ok(Breaker::Shared),
        ("per_operation", _) => Ok(Breaker::PerOperation),
        // A breaker called `per-operation` would be a trap for whoever reads the policy.
        (_, "shared") => Err(value.error("did you mean `shared`? A breaker's own name must not look like it")),
        (_, "peroperation") => {
            Err(value.error("did you mean `per_operation`? A breaker's own name must not look like it"))
        }
        // Under these the breakers of the other two choices are known, with probes of their own.
        ("store" | "auth" | "flag" | "rate_limit" | "lockout", _) => Err(value.error(format!(
            "`{}` is what a shared or a per-operation breaker is called already: choose another name",
            name.as_str()
        ))),
        _ => Ok(Breaker::Named(name)),
    }
}
