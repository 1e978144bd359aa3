//! Limits as text: a table of TOML in a file, an object of JSON in the store. Both have the same keys.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::policy::{Algorithm, Limit, OnOutage};

/// A mistake in a file of quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    /// Such as `limits.api.window`; empty if the text is no TOML.
    pub(crate) key: String,
    pub(crate) reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "`{}` ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

/// The definitions in a file.
pub(crate) fn from_toml(text: &str) -> Result<BTreeMap<String, Limit>, Mistake> {
    let mistake = |at: usize, key: String, reason: &str| Mistake {
        line: 1 + text.as_bytes()[..at.min(text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        key,
        reason: reason.to_owned(),
    };
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        mistake(at, String::new(), &format!("is no TOML: {}", error.message()))
    })?;
    let mut defined = BTreeMap::new();
    for (section, tables) in document.get_ref() {
        let at = section.span().start;
        if section.get_ref() != "limits" {
            let reason = "is unknown: quotas stand in tables such as `[limits.api]`";
            return Err(mistake(at, section.get_ref().to_string(), reason));
        }
        let DeValue::Table(tables) = tables.get_ref() else {
            return Err(mistake(at, "limits".into(), "must be tables such as `[limits.api]`"));
        };
        for (name, table) in tables {
            let (at, path) = (name.span().start, format!("limits.{}", name.get_ref()));
            if let Err(reason) = check_name(name.get_ref()) {
                return Err(mistake(at, path, reason));
            }
            let DeValue::Table(table) = table.get_ref() else {
                return Err(mistake(at, path, "must be a table, with the keys `limit` and `window`"));
            };
            let fields = table
                .iter()
                .map(|(key, value)| (key.get_ref().as_ref(), field(value.get_ref())));
            let limit = limit(fields).map_err(|(key, reason)| {
                let spanned = table.iter().find(|(other, _)| *other.get_ref() == key);
                let at = spanned.map_or(at, |(key, _)| key.span().start);
                mistake(at, format!("{path}.{key}"), &reason)
            })?;
            defined.insert(name.get_ref().to_string(), limit);
        }
    }
    Ok(defined)
}

/// A definition in the store.
pub(crate) fn from_json(text: &str) -> Result<Limit, String> {
    let object: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))?;
    let fields = object.iter().map(|(key, value)| {
        let field = match value {
            Value::String(text) => Field::Text(text.clone()),
            Value::Number(number) => number.as_u64().map_or(Field::Other, Field::Number),
            _ => Field::Other,
        };
        (key.as_str(), field)
    });
    limit(fields).map_err(|(key, reason)| format!("`{key}` {reason}"))
}

/// The same, written.
pub(crate) fn to_json(limit: &Limit) -> String {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| _ = object.insert(key.to_owned(), value);
    put("limit", limit.requests().into());
    put("window", format!("{}ms", limit.window().as_millis()).into());
    put("algorithm", word(&ALGORITHMS, limit.algorithm()).into());
    if let Some(burst) = limit.burst() {
        put("burst", burst.into());
    }
    if let Some(on_outage) = limit.on_outage() {
        put("on_outage", on_outage.as_str().into());
    }
    Value::Object(object).to_string()
}

/// Names go into keys of the store and into headers: the attribute refuses the same ones.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 64 {
        Err("must have 1 to 64 characters")
    } else if name.chars().any(|c| !c.is_ascii_graphic() || r#"{}"\"#.contains(c)) {
        Err("must be printable ASCII without spaces, quotes, backslashes or braces")
    } else {
        Ok(())
    }
}

/// A value, as far as limits have such.
enum Field {
    Text(String),
    Number(u64),
    Other,
}

const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("sliding_window", Algorithm::SlidingWindow),
    ("fixed_window", Algorithm::FixedWindow),
    ("token_bucket", Algorithm::TokenBucket),
];

const ON_OUTAGE: [(&str, OnOutage); 3] = [
    (OnOutage::FailOpen.as_str(), OnOutage::FailOpen),
    (OnOutage::FailClosed.as_str(), OnOutage::FailClosed),
    (OnOutage::FailLocal.as_str(), OnOutage::FailLocal),
];

/// Units of a duration, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];

fn field(value: &DeValue<'_>) -> Field {
    match value {
        DeValue::String(text) => Field::Text(text.to_string()),
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).map_or(Field::Other, Field::Number)
        }
        _ => Field::Other,
    }
}

/// Reads and checks one limit. An error names the key.
fn limit<'a>(fields: impl Iterator<Item = (&'a str, Field)>) -> Result<Limit, (String, String)> {
    let (mut requests, mut window, mut algorithm, mut burst, mut on_outage) = (None, None, None, None, None);
    for (key, value) in fields {
        let read = match key {
            "limit" => number(&value).map(|number| requests = Some(number)),
            "window" => self::window(&value).map(|time| window = Some(time)),
            "algorithm" => one_of(&value, &ALGORITHMS).map(|word| algorithm = Some(word)),
            "burst" => number(&value).map(|number| burst = Some(number)),
            "on_outage" => one_of(&value, &ON_OUTAGE).map(|word| on_outage = Some(word)),
            _ => Err("is unknown: `limit`, `window`, `algorithm`, `burst` and `on_outage` are taken here".to_owned()),
        };
        read.map_err(|reason| (key.to_owned(), reason))?;
    }
    let missing = |key: &str, example: &str| (key.to_owned(), format!("is missing: write `{key} = {example}`"));
    let mut limit = Limit::new(
        requests.ok_or_else(|| missing("limit", "100"))?,
        window.ok_or_else(|| missing("window", "\"1m\""))?,
    );
    limit = algorithm.map_or(limit, |algorithm| limit.with_algorithm(algorithm));
    limit = burst.map_or(limit, |burst| limit.with_burst(burst));
    limit = on_outage.map_or(limit, |on_outage| limit.with_on_outage(on_outage));
    limit
        .validate()
        .map_err(|invalid| (invalid.key.to_owned(), invalid.reason.to_owned()))?;
    Ok(limit)
}

fn number(value: &Field) -> Result<u32, String> {
    match value {
        Field::Number(number) => {
            u32::try_from(*number).map_err(|_| format!("is too large: write at most {}", u32::MAX))
        }
        _ => Err("must be a whole number, 1 or more".to_owned()),
    }
}

fn window(value: &Field) -> Result<Duration, String> {
    let time = match value {
        Field::Number(seconds) => Some(Duration::from_secs(*seconds)),
        Field::Text(text) => duration(text),
        Field::Other => None,
    };
    time.ok_or_else(|| "must be seconds, or text such as \"1m\" with a unit of ms, s, m, h or d".to_owned())
}

/// A whole number and its unit, as the attribute takes it.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    let (digits, unit) = (text[..unit_at].replace('_', ""), &text[unit_at..]);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(*scale).map(Duration::from_millis)
}

fn one_of<T: Copy>(value: &Field, words: &[(&str, T)]) -> Result<T, String> {
    let found = match value {
        Field::Text(text) => words.iter().find(|(word, _)| word == text),
        _ => None,
    };
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let accepted: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("must be one of {}", accepted.join(", "))
    })
}

fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words
        .iter()
        .find(|(_, other)| *other == meaning)
        .map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_all_that_there_is_to_say() {
        let text = r#"
            [limits.api]
            limit = 100
            window = "1m"
            algorithm = "token_bucket"
            burst = 20
            on_outage = "fail_local"

            [limits."team/login:v2"]
            limit = 1_000
            window = 3600
        "#;
        let api = Limit::new(100, Duration::from_secs(60))
            .with_algorithm(Algorithm::TokenBucket)
            .with_burst(20)
            .with_on_outage(OnOutage::FailLocal);
        let login = Limit::new(1000, Duration::from_secs(3600));
        let expected = [("api".to_owned(), api), ("team/login:v2".to_owned(), login)];
        assert_eq!(from_toml(text), Ok(BTreeMap::from(expected)));
        assert_eq!(from_toml(""), Ok(BTreeMap::new()));
        assert_eq!(from_json(&to_json(&api)), Ok(api));
        assert_eq!(from_json(&to_json(&login)), Ok(login));
    }

    #[test]
    fn mistakes_name_line_and_key() {
        let api = "# quotas\n[limits.api]\nlimit = 100\nwindow = \"1m\"\n";
        for (text, line, key, reason) in [
            ("[limits.api", 1, "", "is no TOML"),
            ("[limits.api]\nlimit = 1\nlimit = 2", 3, "", "duplicate"),
            ("\n[limit.api]", 2, "limit", "is unknown"),
            ("limits = 3", 1, "limits", "must be tables"),
            ("[limits]\napi = 3", 2, "limits.api", "must be a table"),
            ("[limits]\n\"a b\" = {}", 2, "limits.a b", "printable ASCII"),
            ("[limits.api]\nwindow = \"1m\"", 1, "limits.api.limit", "is missing"),
            ("[limits.api]\nlimit = 1", 1, "limits.api.window", "is missing"),
            (
                &format!("{api}auth = \"fail_open\""),
                5,
                "limits.api.auth",
                "is unknown",
            ),
            (
                &format!("{api}on_outage = \"open\""),
                5,
                "limits.api.on_outage",
                "must be one of \"fail_open\"",
            ),
            (&format!("{api}burst = 5"), 5, "limits.api.burst", "token_bucket"),
            (
                &format!("{api}algorithm = \"token_bucket\"\nburst = 101"),
                6,
                "limits.api.burst",
                "above the limit",
            ),
            (
                "[limits.api]\nlimit = 0\nwindow = 1",
                2,
                "limits.api.limit",
                "refuse every request",
            ),
            (
                "[limits.api]\nlimit = -1\nwindow = 1",
                2,
                "limits.api.limit",
                "whole number",
            ),
            (
                "[limits.api]\nlimit = 1.5\nwindow = 1",
                2,
                "limits.api.limit",
                "whole number",
            ),
            (
                "[limits.api]\nlimit = 4294967296\nwindow = 1",
                2,
                "limits.api.limit",
                "too large",
            ),
            (
                "[limits.api]\nlimit = 1\nwindow = 0",
                3,
                "limits.api.window",
                "from 1 ms",
            ),
            (
                "[limits.api]\nlimit = 1\nwindow = \"1min\"",
                3,
                "limits.api.window",
                "a unit",
            ),
            (
                "[limits.api]\nlimit = 1\nwindow = \"99999999999999999999d\"",
                3,
                "limits.api.window",
                "a unit",
            ),
            (
                "[limits.api]\nlimit = 1\nwindow = \"367d\"",
                3,
                "limits.api.window",
                "366 days",
            ),
        ] {
            let mistake = from_toml(text).unwrap_err();
            assert_eq!((mistake.line, &*mistake.key), (line, key), "{text}: {mistake}");
            assert!(mistake.reason.contains(reason), "{text}: {mistake}");
        }
    }

    #[test]
    fn the_store_may_hold_anything() {
        for text in [
            "",
            "null",
            "[]",
            "3",
            "{",
            "{}",
            r#"{"limit":1}"#,
            r#"{"limit":"1","window":"1m"}"#,
            r#"{"limit":1,"window":null}"#,
            r#"{"limit":1,"window":"1m","auth":"fail_open"}"#,
            r#"{"limit":-1,"window":"1m"}"#,
            r#"{"limit":1e3,"window":"1m"}"#,
            r#"{"limit":1,"window":"é"}"#,
        ] {
            assert!(from_json(text).is_err(), "{text}");
        }
    }
}
