//! The `RateLimit-Policy` and `RateLimit` fields of the IETF draft: lists of strings with parameters.
//!
//! The draft still moves. What it calls things is said here, and nowhere else.

use std::time::Duration;

use poem::http::{HeaderName, HeaderValue};
use sfv::{Integer, ItemSerializer, KeyRef, ListSerializer, StringRef, key_ref};

use crate::{error::whole_seconds, store::Taken};

pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

const QUOTA: &KeyRef = key_ref("q");
const WINDOW: &KeyRef = key_ref("w");
const REMAINING: &KeyRef = key_ref("r");
const RESET: &KeyRef = key_ref("t");

/// A policy's name in the fields. What no such name can hold is left out: the compiler has refused it already.
pub(crate) fn name(text: &str) -> sfv::String {
    let printable = text.chars().filter(|c| matches!(c, ' '..='~')).collect();
    sfv::String::from_string(printable).unwrap_or_else(|_| unreachable!("only printable ASCII is left"))
}

/// `"default";q=30;w=60`
pub(crate) fn policy_item(name: &StringRef, limit: u32, window: Duration) -> HeaderValue {
    let item = ItemSerializer::new()
        .bare_item(name)
        .parameter(QUOTA, limit)
        .parameter(WINDOW, seconds(window));
    header(item.finish())
}

/// The policies of several items.
pub(crate) fn policies<'a>(items: impl ExactSizeIterator<Item = &'a HeaderValue>) -> HeaderValue {
    let items: Vec<_> = items.map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&items.join(&b", "[..])).expect("items of visible ASCII")
}

/// `"default";r=12;t=34`: on a refusal only the quotas that refuse.
pub(crate) fn state<'a>(said: impl Iterator<Item = (&'a StringRef, Taken)> + Clone) -> HeaderValue {
    let refused = said.clone().any(|(_, taken)| !taken.allowed);
    let mut text = String::with_capacity(48);
    let mut list = ListSerializer::with_buffer(&mut text);
    for (name, taken) in said.filter(|(_, taken)| !refused || !taken.allowed) {
        // Of a quota that refuses, what `Retry-After` is made of: the two never disagree.
        let reset = if taken.allowed { taken.reset } else { taken.retry_after };
        let item = list.bare_item(name);
        let _ = item
            .parameter(REMAINING, taken.remaining)
            .parameter(RESET, seconds(reset))
            .finish();
    }
    header(text)
}

/// As whole seconds, up to the largest number that a field can hold: some 30 million years.
fn seconds(duration: Duration) -> Integer {
    Integer::try_from(whole_seconds(duration)).unwrap_or(Integer::MAX)
}

fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("a structured field is visible ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use sfv::{BareItem, Item, List, ListEntry, Parser};

    use super::*;

    /// Names, and the numbers of one parameter each.
    fn parsed(value: &HeaderValue, keys: [&str; 2]) -> Vec<(String, [i64; 2])> {
        let list = Parser::new(value.as_bytes()).parse::<List>().expect("a list");
        let item = |entry: ListEntry| {
            let ListEntry::Item(Item { bare_item, params }) = entry else {
                panic!("an inner list");
            };
            let BareItem::String(name) = bare_item else {
                panic!("no string: {bare_item:?}");
            };
            let names: Vec<_> = params.keys().map(|key| key.as_str().to_owned()).collect();
            assert_eq!(names, keys);
            let number = |key: &str| match params[key] {
                BareItem::Integer(number) => i64::from(number),
                ref other => panic!("no integer: {other:?}"),
            };
            (name.as_str().to_owned(), keys.map(number))
        };
        list.into_iter().map(item).collect()
    }

    fn taken() -> impl Strategy<Value = Taken> {
        let wait = || (0..=400 * 86_400_000_u64).prop_map(Duration::from_millis);
        (any::<bool>(), any::<u32>(), wait(), wait()).prop_map(|(allowed, remaining, retry_after, reset)| Taken {
            allowed,
            remaining,
            retry_after,
            reset,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(said in vec(("[ -~]{0,64}", taken(), 1..=u32::MAX, 1..=31_622_400_000_u64), 1..4)) {
            let names: Vec<_> = said.iter().map(|(text, ..)| name(text)).collect();
            let items: Vec<_> = said
                .iter()
                .zip(&names)
                .map(|((_, _, limit, window), name)| policy_item(name, *limit, Duration::from_millis(*window)))
                .collect();
            let read = parsed(&policies(items.iter()), ["q", "w"]);
            let written: Vec<_> = said
                .iter()
                .map(|(name, _, limit, window)| (name.clone(), [i64::from(*limit), window.div_ceil(1_000) as i64]))
                .collect();
            prop_assert_eq!(read, written);

            let states = names.iter().map(|name| &**name).zip(said.iter().map(|(_, taken, ..)| *taken));
            let read = parsed(&state(states), ["r", "t"]);
            let refused: Vec<_> = said.iter().filter(|(_, taken, ..)| !taken.allowed).collect();
            let shown = if refused.is_empty() { said.iter().collect() } else { refused };
            prop_assert_eq!(read.len(), shown.len());
            let retry_after = shown.iter().map(|(_, taken, ..)| whole_seconds(taken.retry_after)).max();
            for ((name, [remaining, reset]), (text, taken, ..)) in read.iter().zip(shown) {
                prop_assert_eq!(name, text);
                prop_assert_eq!(*remaining, i64::from(taken.remaining));
                prop_assert!(*reset >= 1);
                // Whoever waits for `Retry-After` has waited for every `t` of those that refuse.
                prop_assert!(taken.allowed || *reset as u64 <= retry_after.expect("some are shown"));
            }
        }
    }

    #[test]
    fn the_wire_text_is_the_drafts() {
        let api = name("api");
        assert_eq!(policy_item(&api, 30, Duration::from_millis(1_001)), "\"api\";q=30;w=2");
        let taken = Taken {
            allowed: true,
            remaining: 12,
            retry_after: Duration::ZERO,
            reset: Duration::from_secs(34),
        };
        let other = name("default");
        let both = [(&*api, taken), (&*other, taken)];
        assert_eq!(state(both.into_iter()), "\"api\";r=12;t=34, \"default\";r=12;t=34");
        assert_eq!(seconds(Duration::MAX), Integer::MAX);
    }

    #[test]
    fn no_name_breaks_a_field() {
        let odd = name("a \"quoted\" \\ näme\n");
        let item = policy_item(&odd, 1, Duration::from_secs(1));
        let read = Parser::new(item.as_bytes()).parse::<Item>().expect("an item");
        assert_eq!(read.bare_item, BareItem::String(odd));
    }
}
