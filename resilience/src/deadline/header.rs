//! A deadline that travels between services in a header: the whole milliseconds that are left. Clocks need not agree.

use std::time::Duration;

use poem::{
    Request,
    http::{HeaderName, HeaderValue},
};

use super::remaining;
use crate::{
    client::{self, Network},
    error::number,
};

/// What is left of the enclosing scope's budget, for a header of an outgoing request: whole milliseconds, rounded down, so
/// that the one who is called never believes in more time than there is. `None` outside of any scope.
///
/// A service that was built with [`Builder::deadline_header`](crate::Builder::deadline_header) reads it.
#[must_use]
pub fn header_value() -> Option<HeaderValue> {
    remaining().map(|left| number(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)))
}

/// Where the caller's own deadline is read, and from whom.
#[derive(Clone, Debug)]
pub(crate) struct DeadlineHeader {
    pub(crate) name: HeaderName,
    pub(crate) ceiling: Duration,
    pub(crate) from: Vec<Network>,
}

impl DeadlineHeader {
    /// What the caller leaves this request, at most the ceiling; `None` if it says nothing of use, or nobody trusts it.
    pub(crate) fn budget(&self, request: &Request) -> Option<Duration> {
        let mut values = request.headers().get_all(&self.name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let budget = milliseconds(value.as_bytes())?.min(self.ceiling);
        client::peer_is_in(request, &self.from).then_some(budget)
    }
}

/// Digits alone: a sign, a unit or a fraction is not ours to guess at. More than fit are as many as fit.
fn milliseconds(text: &[u8]) -> Option<Duration> {
    let text = text.trim_ascii();
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(Duration::from_millis(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_whole_milliseconds_are_a_budget() {
        for (text, expected) in [
            ("250", Some(250)),
            (" 250 ", Some(250)),
            ("0", Some(0)),
            ("000000000000000000000000007", Some(7)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e3", None),
            ("250ms", None),
            ("soon", None),
            ("٣", None),
            ("99999999999999999999999999", Some(u64::MAX)),
        ] {
            assert_eq!(
                milliseconds(text.as_bytes()),
                expected.map(Duration::from_millis),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let said = milliseconds(&bytes);
            prop_assert!(said.is_none() || bytes.trim_ascii().iter().all(u8::is_ascii_digit));
        }

        #[test]
        fn what_is_written_is_read(milliseconds_left: u64) {
            let written = number(milliseconds_left);
            prop_assert_eq!(milliseconds(written.as_bytes()), Some(Duration::from_millis(milliseconds_left)));
        }
    }
}
