//! Text that reads like a rate, such as `30/min` or `100 requests per hour`.
//!
//! In `rate_limit` text is the name of a quota. A rate in its place would name a quota that is defined nowhere.

use std::{num::NonZeroU32, time::Duration};

/// A rate in text; each part is `None` if it cannot be written as numbers of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    limit: Option<NonZeroU32>,
    window: Option<Duration>,
}

impl Rate {
    /// Reads a number, then `/` or `per` and a time, or a unit such as `rps`. Of several rates the first is read.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.split(';').next().unwrap_or_default();
        let (limit, rest) = number(text)?;
        let limit = limit
            .and_then(|limit| u32::try_from(limit).ok())
            .and_then(NonZeroU32::new);
        let rest = rest.trim_start_matches(GAPS);
        let unit = rest.trim_end_matches(GAPS);
        if let Some((_, seconds)) = RATES.iter().find(|(name, _)| *name == unit) {
            let window = Some(Duration::from_secs(*seconds));
            return Some(Self { limit, window });
        }
        let rest = NOUNS
            .iter()
            .find_map(|noun| {
                rest.strip_prefix(noun)
                    .filter(|rest| !rest.starts_with(char::is_alphanumeric))
            })
            .unwrap_or(rest)
            .trim_start_matches(GAPS);
        let rest = SEPARATORS.iter().find_map(|separator| rest.strip_prefix(separator))?;
        let window = window(rest.trim_matches(GAPS))?;
        Some(Self { limit, window })
    }

    /// The guard that this rate is, and its meaning. An example if the numbers cannot be used.
    pub(crate) fn advice(&self) -> String {
        let (Some(limit), Some(window)) = (self.limit, self.window) else {
            return "`rate_limit(30, 60)` for 30 requests in 60 seconds".to_owned();
        };
        let plural = |count: u128| if count == 1 { "" } else { "s" };
        let requests = plural(limit.get().into());
        let millis = window.as_millis();
        if window.subsec_nanos() == 0 {
            let seconds = millis / 1_000;
            let unit = plural(seconds);
            format!("`rate_limit({limit}, {seconds})` for {limit} request{requests} in {seconds} second{unit}")
        } else {
            format!("`rate_limit({limit}, \"{millis}ms\")` for {limit} request{requests} in {millis} ms")
        }
    }
}

const GAPS: [char; 3] = [' ', '_', '-'];

/// Longer ones first: each is tried as a prefix.
const NOUNS: [&str; 9] = [
    "requests", "request", "reqs", "req", "calls", "call", "hits", "hit", "r",
];

const SEPARATORS: [&str; 4] = ["/", "per", "every", "in"];

const RATES: [(&str, u64); 8] = [
    ("rps", 1),
    ("qps", 1),
    ("tps", 1),
    ("rpm", 60),
    ("qpm", 60),
    ("rph", 60 * 60),
    ("rpd", DAY),
    ("qpd", DAY),
];

const DAY: u64 = 24 * 60 * 60;

/// Units of time in milliseconds.
const UNITS: [(&[&str], u64); 6] = [
    (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["m", "min", "mins", "minute", "minutes"], 60 * 1_000),
    (&["h", "hr", "hrs", "hour", "hours"], 60 * 60 * 1_000),
    (&["d", "day", "days"], DAY * 1_000),
    (&["w", "week", "weeks"], 7 * DAY * 1_000),
];

/// Units of time that no window is as long as, or that have no one length.
const VAGUE: [&str; 6] = ["mo", "month", "months", "y", "year", "years"];

/// The number in front, `None` inside if it is too large, and the rest.
fn number(text: &str) -> Option<(Option<u64>, &str)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_' && c != ',')
        .unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(char::is_ascii_digit).collect();
    let rest = &text[end..];
    let (scale, rest) = match rest.strip_prefix('k') {
        Some(thousands) => (1_000, thousands),
        None => (1, rest),
    };
    Some((
        digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)),
        rest,
    ))
}

/// A unit of time, a number of them, or a number of seconds. `None` inside if it is no window.
fn window(text: &str) -> Option<Option<Duration>> {
    let (count, unit) = match number(text) {
        Some((count, unit)) => (count, unit.trim_start_matches(GAPS)),
        None => (Some(1), text),
    };
    let millis = match UNITS.iter().find(|(names, _)| names.contains(&unit)) {
        Some((_, millis)) => *millis,
        None if unit.is_empty() && !text.is_empty() => 1_000,
        None if VAGUE.contains(&unit) => return Some(None),
        None => return None,
    };
    let window = count.and_then(|count| count.checked_mul(millis));
    Some(
        window
            .filter(|millis| (1..=366 * DAY * 1_000).contains(millis))
            .map(Duration::from_millis),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_many_spellings() {
        for (text, written) in [
            ("30/min", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("30/60", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("1/s", "`rate_limit(1, 1)` for 1 request in 1 second"),
            ("5/10s", "`rate_limit(5, 10)` for 5 requests in 10 seconds"),
            ("5/100ms", "`rate_limit(5, \"100ms\")` for 5 requests in 100 ms"),
            ("100r/m", "`rate_limit(100, 60)` for 100 requests in 60 seconds"),
            (
                "100 req/hour",
                "`rate_limit(100, 3600)` for 100 requests in 3600 seconds",
            ),
            ("30rps", "`rate_limit(30, 1)` for 30 requests in 1 second"),
            ("30 RPM", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("30 per minute", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("30_per_minute", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            (
                "30-per-10-seconds",
                "`rate_limit(30, 10)` for 30 requests in 10 seconds",
            ),
            (
                "30 requests every 10 s",
                "`rate_limit(30, 10)` for 30 requests in 10 seconds",
            ),
            ("30in60s", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            (
                "1_000/day",
                "`rate_limit(1000, 86400)` for 1000 requests in 86400 seconds",
            ),
            (
                "10k/day",
                "`rate_limit(10000, 86400)` for 10000 requests in 86400 seconds",
            ),
            ("5/minute;100/hour", "`rate_limit(5, 60)` for 5 requests in 60 seconds"),
            // Numbers that no quota has.
            ("0/min", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("30/month", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
            ("30/0s", "`rate_limit(30, 60)` for 30 requests in 60 seconds"),
        ] {
            let rate = Rate::parse(text).unwrap_or_else(|| panic!("{text} is not read"));
            assert_eq!(rate.advice(), written, "{text}");
        }
        assert!(Rate::parse("99999999999999999999/s").is_some());
        assert!(Rate::parse("9999999999/s").is_some());
    }

    #[test]
    fn names_are_no_rates() {
        for name in [
            "api",
            "login/address",
            "per-minute",
            "rps",
            "2fa",
            "2fa/login",
            "3d",
            "30",
            "30s",
            "v1/30",
            "api-30/min",
            "24h",
            "404/page",
            "30/",
            "30/minx",
            "5-stars",
            "10-per-team",
            "3rps-api",
            "100in",
            "7inbox",
            "1/search",
            "",
        ] {
            assert_eq!(Rate::parse(name), None, "{name}");
        }
    }
}
