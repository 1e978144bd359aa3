//! Untyped values to typed ones: numbers, durations, names, header names, words.
//!
//! What comes out is valid; nothing behind this file checks a value again.

use std::{num::NonZeroU32, time::Duration};

use proc_macro2::TokenStream;
use syn::{ExprPath, Lit, LitInt, LitStr, Result};

use crate::{
    args::Value,
    errors::{advice, list, nearest},
    rate::Rate,
};

/// The name of a flag, a quota or a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a header, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderName(String);

impl HeaderName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path of a fn of the user's own, and how it is written: by this two of them are compared.
#[derive(Clone, Debug)]
pub(crate) struct KeyPath {
    pub(crate) path: TokenStream,
    pub(crate) written: String,
}

impl PartialEq for KeyPath {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for KeyPath {}

/// How many requests pass: 1 to `u32::MAX`.
pub(crate) fn limit(value: &Value) -> Result<NonZeroU32> {
    let advice = "would refuse every request: write 1 or more, or remove the route";
    count(value, "limit", "requests", "30", advice)
}

/// How many requests pass at once: 1 to `u32::MAX`.
pub(crate) fn burst(value: &Value) -> Result<NonZeroU32> {
    let advice = "would refuse every request: write 1 or more";
    count(value, "burst", "requests", "10", advice)
}

/// As how many requests one counts: 1 to `u32::MAX`.
pub(crate) fn cost(value: &Value) -> Result<NonZeroU32> {
    let advice = "would count no request: write 1 or more, or remove the quota";
    count(value, "cost", "requests", "5", advice)
}

/// How many requests may be in flight: 1 to 1,000,000.
pub(crate) fn slots(value: &Value) -> Result<NonZeroU32> {
    let advice = "would refuse every request: write 1 or more, or remove the route";
    places(value, "limit", "64", advice)
}

/// How many requests may wait for a slot: 1 to 1,000,000.
pub(crate) fn queue(value: &Value) -> Result<NonZeroU32> {
    places(value, "queue", "16", "is none: write 1 or more, or remove it")
}

/// How long a request may wait for a slot: 1 ms to 10 minutes.
pub(crate) fn queue_timeout(value: &Value) -> Result<Duration> {
    bounded(value, "wait", duration(value)?, Duration::from_secs(600), "10 minutes")
}

fn places(value: &Value, what: &str, example: &str, advice: &str) -> Result<NonZeroU32> {
    let places = count(value, what, "requests", example, advice)?;
    if places.get() > MAX_PLACES {
        return Err(value.error(format!(
            "a {what} of {places} bounds nothing: write at most {MAX_PLACES}"
        )));
    }
    Ok(places)
}

/// A share in percent: `"1%"` to `"100%"`.
pub(crate) fn percent(value: &Value) -> Result<u8> {
    let share = text(value, "a share", "25%")?.value();
    let percent = share.strip_suffix('%').and_then(|digits| digits.parse().ok());
    percent
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| value.error(format!("{share:?} is no share: write one from \"1%\" to \"100%\"")))
}

/// How many attempts lead to a lock: 1 to 1,000.
pub(crate) fn attempts(value: &Value) -> Result<NonZeroU32> {
    let advice = "would let nobody log in: write 1 or more";
    let attempts = count(value, "lockout's limit", "attempts", "5", advice)?;
    if attempts.get() > MAX_ATTEMPTS {
        return Err(value.error(format!(
            "a lockout remembers each attempt by itself, and so many guesses are no lock: write at most {MAX_ATTEMPTS}"
        )));
    }
    Ok(attempts)
}

/// How long the first lock lasts, the second, and so on: each 1 ms to 366 days, and longer than the one before.
pub(crate) fn lock_durations(value: &Value) -> Result<Vec<Duration>> {
    let what = "lock's duration";
    let lock = |duration| bounded(value, what, duration, DAYS_366, "366 days");
    let durations = match literal(value) {
        Some(Lit::Int(number)) => vec![lock(Duration::from_secs(integer(value, what, &number)?.into()))?],
        Some(Lit::Str(text)) => {
            let text = text.value();
            let each = text
                .split(',')
                .map(|part| parse_duration(value, part.trim()).and_then(lock));
            each.collect::<Result<Vec<_>>>()?
        }
        _ => {
            return Err(value.error(
                "a lock's duration is a literal, which the compiler can check: \"15m\", seconds, or several that rise, \
                 such as \"1m, 5m, 15m, 1h\"",
            ));
        }
    };
    if durations.is_sorted_by(|earlier, later| earlier < later) {
        Ok(durations)
    } else {
        Err(value.error(
            "each lock lasts longer than the one before: write the durations in rising order, such as \
             \"1m, 5m, 15m, 1h\", or only one",
        ))
    }
}

/// The path of a fn that names the client of a request. A single word that one of the `words` was meant by is none;
/// `forms` is how the words are written.
pub(crate) fn path_key(value: &Value, words: &[&str], forms: &[&str]) -> Result<KeyPath> {
    if let Some(word) = value.word()
        && let Some(near) = nearest(&word.to_string(), words)
    {
        return Err(value.error(format!("unknown key `{word}`: did you mean `{near}`?")));
    }
    let path = value.tokens();
    syn::parse2::<ExprPath>(path.clone()).map_err(|_| {
        value.error(format!(
            "expected a key without quotes, one of {}, or the path of a fn of your own",
            list(forms)
        ))
    })?;
    let written = path.to_string().replace(' ', "");
    Ok(KeyPath { path, written })
}

/// The time in which a quota is counted: 1 ms to 366 days, or whole seconds without a unit.
pub(crate) fn window(value: &Value) -> Result<Duration> {
    let window = match literal(value) {
        Some(Lit::Int(number)) => Duration::from_secs(integer(value, "window", &number)?.into()),
        Some(Lit::Float(_)) => {
            return Err(value.error("a window is a whole number of seconds, such as `60`, or text, such as \"1500ms\""));
        }
        Some(Lit::Str(text)) => parse_duration(value, &text.value())?,
        _ => {
            return Err(value.error(
                "a window is a literal, which the compiler can check: seconds, such as `60`, or text, such as \"1m\"",
            ));
        }
    };
    bounded(value, "window", window, DAYS_366, "366 days")
}

/// The budget of an operation or of a handler: 1 ms to 1 h.
pub(crate) fn deadline(value: &Value) -> Result<Duration> {
    bounded(value, "deadline", duration(value)?, Duration::from_secs(3600), "1 hour")
}

/// How long a last known value may serve: 1 ms to 366 days.
pub(crate) fn stale(value: &Value) -> Result<Duration> {
    bounded(value, "`stale` time", duration(value)?, DAYS_366, "366 days")
}

/// 1 to 64 printable ASCII characters that are safe in keys of the store and in headers.
pub(crate) fn name(value: &Value) -> Result<Name> {
    let name = text(value, "a name", "checkout")?.value();
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(value.error(format!(
            "a name has 1 to {MAX_NAME} characters, this one has {}",
            name.chars().count()
        )));
    }
    match name.chars().find(|c| !c.is_ascii_graphic() || r#"{}"\"#.contains(*c)) {
        Some(c) => Err(value.error(format!(
            "a name goes into keys of the store and into headers, where {c:?} is not safe: \
             use printable ASCII without spaces, quotes, backslashes or braces"
        ))),
        None => Ok(Name(name)),
    }
}

/// The rate that this text reads like.
pub(crate) fn rate(value: &Value) -> Option<(String, Rate)> {
    match literal(value) {
        Some(Lit::Str(text)) => Rate::parse(&text.value()).map(|rate| (text.value(), rate)),
        _ => None,
    }
}

/// The name of a quota, alone in its place: a name that does not read like a rate.
pub(crate) fn quota(value: &Value) -> Result<Name> {
    match rate(value) {
        Some((text, rate)) => Err(value.error(format!(
            "`{text}` reads like a rate, but text here is the name of a quota: write {}",
            rate.advice()
        ))),
        None => name(value),
    }
}

/// The same as an option beside the numbers.
pub(crate) fn quota_name(value: &Value) -> Result<Name> {
    match rate(value) {
        Some((text, _)) => Err(value.error(format!(
            "`{text}` reads like a rate, but `name` is only the name of a quota: write a name such as `name = \"api\"`, \
             and the rate as numbers, such as `rate_limit(30, 60)`"
        ))),
        None => name(value),
    }
}

/// Whether this is text where a number could stand, but no number in quotes.
pub(crate) fn is_name(value: &Value) -> bool {
    matches!(literal(value), Some(Lit::Str(text)) if text.value().parse::<i128>().is_err())
}

/// A header's name: an HTTP token in any case.
pub(crate) fn header_name(value: &Value) -> Result<HeaderName> {
    let name = text(value, "a header's name", "x-api-key")?.value();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() {
        return Err(value.error("a header's name cannot be empty: write one such as \"x-api-key\""));
    }
    match name.chars().find(|c| !is_token(*c)) {
        Some(c) => Err(value.error(format!(
            "{c:?} cannot stand in a header's name: use letters, digits and dashes, such as \"x-api-key\""
        ))),
        None => Ok(HeaderName(name.to_ascii_lowercase())),
    }
}

/// `true` or `false`, without quotes.
pub(crate) fn boolean(value: &Value) -> Result<bool> {
    match literal(value) {
        Some(Lit::Bool(boolean)) => Ok(boolean.value),
        _ => Err(value.error("expected `true` or `false`, without quotes")),
    }
}

/// One of a few words, in quotes.
pub(crate) fn word<T: Copy>(value: &Value, accepted: &[(&str, T)]) -> Result<T> {
    let words: Vec<_> = accepted.iter().map(|(word, _)| *word).collect();
    let Some(Lit::Str(text)) = literal(value) else {
        return Err(value.error(format!("expected a word in quotes, one of {}", list(&words))));
    };
    let text = text.value();
    accepted
        .iter()
        .find_map(|(word, meaning)| (*word == text).then_some(*meaning))
        .ok_or_else(|| value.error(format!("unknown word `{text}`: {}", advice(&text, &words))))
}

/// Any text in quotes; `what` says what it is for, and `example` how it may look.
pub(crate) fn text(value: &Value, what: &str, example: &str) -> Result<LitStr> {
    match (literal(value), value.word()) {
        (Some(Lit::Str(text)), _) => Ok(text),
        (_, Some(word)) => Err(value.error(format!("{what} stands in quotes: write \"{word}\""))),
        _ => Err(value.error(format!("expected {what} in quotes, such as \"{example}\""))),
    }
}

const MAX_NAME: usize = 64;
const MAX_ATTEMPTS: u32 = 1_000;

/// Not more than the runtime takes.
const MAX_PLACES: u32 = 1_000_000;
const DAYS_366: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Units of a duration, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];

/// A number of `things`; `zero` says why it cannot be none.
pub(crate) fn count(value: &Value, what: &str, things: &str, example: &str, zero: &str) -> Result<NonZeroU32> {
    let number = match literal(value) {
        Some(Lit::Int(number)) => integer(value, what, &number)?,
        Some(Lit::Float(_)) => {
            return Err(value.error(format!("a {what} is a whole number of {things}, such as `{example}`")));
        }
        Some(Lit::Str(text)) if text.value().parse::<u32>().is_ok() => {
            return Err(value.error(format!("a {what} is a number: write `{}` without quotes", text.value())));
        }
        _ => {
            return Err(value.error(format!(
                "a {what} is a literal number, which the compiler can check, such as `{example}`"
            )));
        }
    };
    NonZeroU32::new(number).ok_or_else(|| value.error(format!("a {what} of 0 {zero}")))
}

fn literal(value: &Value) -> Option<Lit> {
    syn::parse2(value.tokens()).ok()
}

fn integer(value: &Value, what: &str, number: &LitInt) -> Result<u32> {
    let digits = number.base10_digits();
    if digits.starts_with('-') {
        return Err(value.error(format!("a {what} cannot be negative: write 1 or more")));
    }
    if !matches!(number.suffix(), "" | "u32") {
        return Err(value.error(format!(
            "a {what} is a `u32`: write `{digits}` without the suffix `{}`",
            number.suffix()
        )));
    }
    digits.parse().map_err(|_| {
        value.error(format!(
            "{digits} is too large for a {what}: write at most {}",
            u32::MAX
        ))
    })
}

/// A duration that needs its unit.
pub(crate) fn duration(value: &Value) -> Result<Duration> {
    match literal(value) {
        Some(Lit::Str(text)) => parse_duration(value, &text.value()),
        Some(Lit::Int(number)) if !number.base10_digits().starts_with('-') => {
            let digits = number.base10_digits();
            Err(value.error(format!(
                "a duration needs a unit: write \"{digits}ms\" or \"{digits}s\""
            )))
        }
        _ => Err(value.error("expected a duration in quotes, such as \"150ms\" or \"2s\"")),
    }
}

fn parse_duration(value: &Value, text: &str) -> Result<Duration> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let digits = number.replace('_', "");
    let Some((_, scale)) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .filter(|_| !digits.is_empty())
    else {
        return Err(value.error(format!(
            "{text:?} is not a duration: write a whole number and its unit (ms, s, m, h or d), such as \"30s\""
        )));
    };
    // Too many digits for a number are too long for any bound.
    let millis = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*scale));
    Ok(millis.map_or(Duration::MAX, Duration::from_millis))
}

pub(crate) fn bounded(
    value: &Value,
    what: &str,
    duration: Duration,
    max: Duration,
    max_text: &str,
) -> Result<Duration> {
    if duration.is_zero() {
        Err(value.error(format!(
            "a {what} cannot be zero: write one between 1 ms and {max_text}"
        )))
    } else if duration > max {
        Err(value.error(format!(
            "this {what} is too long: write one between 1 ms and {max_text}"
        )))
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;
    use crate::{
        args::{Entry, entries},
        errors::Errors,
    };

    fn value(tokens: TokenStream) -> Value {
        let Some(Entry::Bare(value)) = entries(tokens, &mut Errors::default()).pop() else {
            panic!("not a bare value");
        };
        value
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn limits() {
        for (tokens, number) in [
            (quote!(1), 1),
            (quote!(1_000), 1000),
            (quote!(30u32), 30),
            (quote!(0x1E), 30),
            (quote!(4294967295), u32::MAX),
        ] {
            assert_eq!(limit(&value(tokens)).unwrap().get(), number);
        }
        for (tokens, part) in [
            (quote!(0), "would refuse every request"),
            (quote!(-1), "negative"),
            (quote!(4294967296), "too large"),
            (quote!(99999999999999999999999999999999999999999999999999), "too large"),
            (quote!(1.5), "whole number"),
            (quote!(-1.5), "whole number"),
            (quote!(30u64), "suffix `u64`"),
            (quote!("30"), "write `30` without quotes"),
            (quote!(LIMIT), "literal"),
            (quote!(10 * 3), "literal"),
            (quote!('3'), "literal"),
            (quote!(true), "literal"),
        ] {
            let message = refusal(limit(&value(tokens.clone())));
            assert!(message.contains(part), "{tokens}: {message}");
        }
    }

    #[test]
    fn windows() {
        for (tokens, millis) in [
            (quote!(1), 1000),
            (quote!(60u32), 60_000),
            (quote!("1ms"), 1),
            (quote!("150ms"), 150),
            (quote!("1_500ms"), 1500),
            (quote!("30s"), 30_000),
            (quote!("15m"), 900_000),
            (quote!("1h"), 3_600_000),
            (quote!("366d"), 31_622_400_000),
            (quote!(31622400), 31_622_400_000),
        ] {
            assert_eq!(window(&value(tokens)).unwrap(), Duration::from_millis(millis));
        }
        for (tokens, part) in [
            (quote!(0), "zero"),
            (quote!("0s"), "zero"),
            (quote!("00d"), "zero"),
            (quote!(-60), "negative"),
            (quote!(0.5), "whole number"),
            (quote!(31622401), "too long"),
            (quote!(4294967296), "too large"),
            (quote!("367d"), "too long"),
            (quote!("99999999999999999999999d"), "too long"),
            (quote!("18446744073709551615d"), "too long"),
            (quote!(WINDOW), "literal"),
            (quote!(b"1m"), "literal"),
        ] {
            let message = refusal(window(&value(tokens.clone())));
            assert!(message.contains(part), "{tokens}: {message}");
        }
    }

    #[test]
    fn shares_are_in_percent() {
        for (tokens, share) in [(quote!("1%"), 1), (quote!("25%"), 25), (quote!("100%"), 100)] {
            assert_eq!(percent(&value(tokens)).unwrap(), share);
        }
        for tokens in [
            quote!("0%"),
            quote!("101%"),
            quote!("256%"),
            quote!("25"),
            quote!("%"),
            quote!("-1%"),
            quote!("2.5%"),
            quote!("25 %"),
            quote!(25),
            quote!(0.25),
        ] {
            let message = refusal(percent(&value(tokens.clone())));
            assert!(message.contains("share"), "{tokens}: {message}");
        }
    }

    #[test]
    fn attempts_are_few() {
        assert_eq!(attempts(&value(quote!(1))).unwrap().get(), 1);
        assert_eq!(attempts(&value(quote!(1_000))).unwrap().get(), 1_000);
        for (tokens, part) in [
            (quote!(0), "would let nobody log in"),
            (quote!(1001), "at most 1000"),
            (quote!(-5), "negative"),
            (quote!(0.5), "whole number of attempts"),
            (quote!("5"), "write `5` without quotes"),
            (quote!(FIVE), "literal"),
        ] {
            let message = refusal(attempts(&value(tokens.clone())));
            assert!(message.contains(part), "{tokens}: {message}");
        }
    }

    #[test]
    fn lock_durations_rise() {
        for (tokens, millis) in [
            (quote!(900), &[900_000][..]),
            (quote!("15m"), &[900_000]),
            (quote!("1m,5m ,  15m, 1h"), &[60_000, 300_000, 900_000, 3_600_000]),
        ] {
            let expected: Vec<_> = millis.iter().copied().map(Duration::from_millis).collect();
            assert_eq!(lock_durations(&value(tokens)).unwrap(), expected);
        }
        for (tokens, part) in [
            (quote!(0), "zero"),
            (quote!("1m, 0s"), "zero"),
            (quote!("1m, 367d"), "too long"),
            (quote!("1m, 60s"), "rising order"),
            (quote!("1h, 1m"), "rising order"),
            (quote!("1m, 5m,"), "not a duration"),
            (quote!("1m 5m"), "not a duration"),
            (quote!(1.5), "literal"),
            (quote!(["1m", "5m"]), "literal"),
        ] {
            let message = refusal(lock_durations(&value(tokens.clone())));
            assert!(message.contains(part), "{tokens}: {message}");
        }
    }

    #[test]
    fn a_key_of_ones_own_is_a_path_and_no_typo() {
        let words = ["ip", "user"];
        let of = |tokens| path_key(&value(tokens), &words, &words);
        for (tokens, written) in [
            (quote!(tenant), "tenant"),
            (quote!(crate::keys::tenant), "crate::keys::tenant"),
            (quote!(tenant::<u8>), "tenant::<u8>"),
            (quote!(<Keys as Of>::key), "<KeysasOf>::key"),
        ] {
            assert_eq!(of(tokens).unwrap().written, written);
        }
        assert!(refusal(of(quote!(usr))).contains("did you mean `user`?"));
        for tokens in [quote!("ip"), quote!(|_| None), quote!(5)] {
            let message = refusal(of(tokens.clone()));
            assert!(
                message.contains("one of `ip`, `user`, or the path"),
                "{tokens}: {message}"
            );
        }
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for text in [
            "", " ", "s", "ms", "_s", "1", "1 s", " 1s", "1s ", "1.5s", "-1s", "+1s", "1S", "1min", "1sec", "1us",
            "1h30m", "١s", "1ß", "1\u{0}", "0x1s", "1e3s", "∞",
        ] {
            let message = refusal(deadline(&value(quote!(#text))));
            assert!(message.contains("is not a duration"), "{text:?}: {message}");
        }
        assert_eq!(deadline(&value(quote!("1h"))).unwrap(), Duration::from_secs(3600));
        assert!(refusal(deadline(&value(quote!("61m")))).contains("between 1 ms and 1 hour"));
        assert!(refusal(deadline(&value(quote!(2)))).contains("write \"2ms\" or \"2s\""));
        assert!(refusal(deadline(&value(quote!(-2)))).contains("expected a duration"));
        assert_eq!(stale(&value(quote!("1d"))).unwrap(), Duration::from_secs(86_400));
    }

    #[test]
    fn names() {
        let longest = "n".repeat(64);
        for text in ["a", "checkout", "team/login:v2", "a-b_c.d", &longest] {
            assert_eq!(name(&value(quote!(#text))).unwrap().as_str(), text);
        }
        let too_long = "n".repeat(65);
        for text in [
            "", " ", "a b", "a{b", "a}b", "a\"b", "a\\b", "a\nb", "a\u{7f}", "é", &too_long,
        ] {
            name(&value(quote!(#text))).unwrap_err();
        }
        assert!(refusal(name(&value(quote!(checkout)))).contains("write \"checkout\""));
    }

    #[test]
    fn header_names() {
        assert_eq!(header_name(&value(quote!("X-Api-Key"))).unwrap().as_str(), "x-api-key");
        for text in ["", "x api", "x:y", "x\r\n", "schlüssel", "x/y", "(x)"] {
            header_name(&value(quote!(#text))).unwrap_err();
        }
    }

    #[test]
    fn words() {
        let table = [("fail_open", 1), ("fail_closed", 2)];
        assert_eq!(word(&value(quote!("fail_closed")), &table).unwrap(), 2);
        assert!(refusal(word(&value(quote!("fail-open")), &table)).contains("did you mean `fail_open`?"));
        assert!(refusal(word(&value(quote!("retry")), &table)).contains("accepted here: `fail_open`, `fail_closed`"));
        assert!(refusal(word(&value(quote!(fail_open)), &table)).contains("in quotes"));
    }
}
