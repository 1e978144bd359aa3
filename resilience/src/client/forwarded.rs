//! What proxies write about who called them: `X-Forwarded-For`, and `Forwarded` as RFC 7239 has it.
//!
//! Each hop appends, so lists are read from the right: what is found there does not depend on anything to the left of it,
//! where clients may have written what they like.

use std::net::{IpAddr, Ipv6Addr};

/// Longest element of a list that is read. A longer one counts as unreadable.
const ELEMENT_MAX: usize = 512;

/// Which header the proxies in front of this service maintain.
///
/// One of them only: a proxy that appends to one passes the other on as the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For: 203.0.113.7, 10.0.0.2`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=203.0.113.7, for="[2001:db8::2]:4711";proto=https`, by RFC 7239.
    Forwarded,
}

impl ProxyHeader {
    /// The header's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// What this header's lines say, the last hop's word first. Lazy: only as much is read as is asked for.
    pub(crate) fn hops<'a>(self, lines: impl DoubleEndedIterator<Item = &'a [u8]>) -> impl Iterator<Item = Hop> {
        let elements = lines.rev().flat_map(|line| FromRight::of(line, b','));
        elements.map(move |element| match element.trim_ascii() {
            _ if element.len() > ELEMENT_MAX => Hop::Unreadable,
            [] => Hop::Empty,
            element => {
                let address = match self {
                    Self::XForwardedFor => node(element),
                    Self::Forwarded => forwarded_for(element),
                };
                address.map_or(Hop::Unreadable, Hop::Address)
            }
        })
    }
}

/// What one hop says about who called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// Called by this address; `::ffff:a.b.c.d` is unmapped.
    Address(IpAddr),
    /// Nothing between two commas, which RFC 9110 tells recipients to ignore. It is told, so that it can be counted.
    Empty,
    /// It would not say (`unknown`, `_hidden`), or what it says is malformed or too long.
    Unreadable,
}

/// Parts of a list from its end, cut at separators outside quoted strings. No part that is longer than
/// [`ELEMENT_MAX`] is searched to its beginning: it comes with all that is left of it.
struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> FromRight<'a> {
    fn of(list: &'a [u8], separator: u8) -> Self {
        Self {
            rest: Some(list),
            separator,
        }
    }
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let list = self.rest.take()?;
        let mut quoted = false;
        for (at, &byte) in list.iter().enumerate().rev().take(ELEMENT_MAX + 1) {
            match byte {
                // From the right the first quote closes a string, whatever stands before it.
                b'"' if !quoted => quoted = true,
                b'"' if !is_escaped(&list[..at]) => quoted = false,
                byte if byte == self.separator && !quoted => {
                    self.rest = Some(&list[..at]);
                    return Some(&list[at + 1..]);
                }
                _ => {}
            }
        }
        Some(list)
    }
}

/// Whether what follows `before` is escaped: by an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    let nearest = before.iter().rev().take(ELEMENT_MAX);
    nearest.take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address in a `Forwarded` element. Exactly one parameter must be `for`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in FromRight::of(element, b';') {
        let Some(equals) = pair.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.trim_ascii().eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
    }
    node(found?.trim_ascii())
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`; IPv6 with a zone or without, all
/// of it in quotes or not.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match text.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => text,
    };
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, after) = bracketed.split_once(']')?;
        if !after.is_empty() && !after.strip_prefix(':').is_some_and(is_port) {
            return None;
        }
        ipv6(address)?.into()
    } else {
        match text.split_once(':') {
            None => IpAddr::V4(text.parse().ok()?),
            Some((_, rest)) if rest.contains(':') => ipv6(text)?.into(),
            Some((address, port)) if is_port(port) => IpAddr::V4(address.parse().ok()?),
            Some(_) => return None,
        }
    };
    Some(address.to_canonical())
}

/// A zone says on which of the proxy's links the address lives: of no use here.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    match text.split_once('%') {
        None => text.parse().ok(),
        Some((_, "")) => None,
        Some((address, _zone)) => address.parse().ok(),
    }
}

/// Digits, or `_` and what hides them.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
        Some(hidden) => {
            !hidden.is_empty()
                && hidden
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hops(header: ProxyHeader, lines: &[&str]) -> Vec<Hop> {
        header.hops(lines.iter().map(|line| line.as_bytes())).collect()
    }

    fn address(text: &str) -> Hop {
        Hop::Address(text.parse().expect("an address"))
    }

    #[test]
    fn a_node_is_an_address_in_any_of_its_spellings() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("192.0.2.1:_secret.port-1", "192.0.2.1"),
            ("\"192.0.2.1:4711\"", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("\"[2001:DB8::1]:4711\"", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:c000:201]:80", "192.0.2.1"),
            ("[::ffff:192.0.2.1%eth0]", "192.0.2.1"),
        ] {
            assert_eq!(node(text.as_bytes()), expected.parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "unknown",
            "_hidden",
            "\"_hidden\"",
            "example.com",
            "192.0.2",
            "192.0.2.256",
            "0192.0.2.1",
            "192.0.2.1:",
            "192.0.2.1:123456",
            "192.0.2.1:8o",
            "192.0.2.1:_",
            "192.0.2.1/32",
            "192.0.2.1 ",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]4711",
            "[2001:db8::1]:",
            "[]",
            "[:]",
            ":",
            "::%",
            "\"192.0.2.1",
            "192.0.2.1\"",
            "\"\"",
            "\"",
            "'192.0.2.1'",
            "192.0.2.1\0",
            "192.0.2.1\u{e9}",
            "１92.0.2.1",
        ] {
            assert_eq!(node(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(node(b"192.0.2.1\xff"), None);
    }

    #[test]
    fn lists_and_lines_are_read_from_the_right() {
        let lines = ["192.0.2.1, 192.0.2.2", "", "192.0.2.3 ,\t192.0.2.4,,unknown"];
        let expected = [
            Hop::Unreadable,
            Hop::Empty,
            address("192.0.2.4"),
            address("192.0.2.3"),
            Hop::Empty,
            address("192.0.2.2"),
            address("192.0.2.1"),
        ];
        assert_eq!(hops(ProxyHeader::XForwardedFor, &lines), expected);
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_has_it() {
        for (line, expected) in [
            ("for=192.0.2.1", address("192.0.2.1")),
            ("For=\"[2001:db8:cafe::17]:4711\"", address("2001:db8:cafe::17")),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", address("192.0.2.60")),
            ("by=203.0.113.43 ; FOR = 192.0.2.60", address("192.0.2.60")),
            (
                "host=\"a,b;for=192.0.2.9\\\", for=\\\\\";for=192.0.2.1",
                address("192.0.2.1"),
            ),
            ("for=192.0.2.1;host=\"a;for=192.0.2.9\"", address("192.0.2.1")),
            ("for=\"_gazonk\"", Hop::Unreadable),
            ("for=unknown", Hop::Unreadable),
            ("by=203.0.113.43", Hop::Unreadable),
            ("for=192.0.2.1;for=192.0.2.1", Hop::Unreadable),
            ("for=", Hop::Unreadable),
            ("for", Hop::Unreadable),
            ("192.0.2.1", Hop::Unreadable),
            ("for=\"192\\.0.2.1\"", Hop::Unreadable),
        ] {
            assert_eq!(hops(ProxyHeader::Forwarded, &[line]), [expected], "{line}");
        }
    }

    #[test]
    fn a_quote_left_open_to_the_left_reaches_nothing_to_the_right() {
        for left in ["for=\"", "\"", "for=\"x\\", "\\\"", "for=\"a\\\\\""] {
            let line = format!("{left},for=\"[2001:db8::1]\";host=\"a\\\"b\"");
            assert_eq!(
                hops(ProxyHeader::Forwarded, &[&line])[0],
                address("2001:db8::1"),
                "{line}"
            );
        }
    }

    #[test]
    fn an_element_over_the_limit_ends_its_line_unreadable() {
        let padded = |length: usize| format!("192.0.2.9,{:>length$}", "192.0.2.1");
        let at_limit = hops(ProxyHeader::XForwardedFor, &[&padded(ELEMENT_MAX)]);
        assert_eq!(at_limit, [address("192.0.2.1"), address("192.0.2.9")]);
        let over = hops(ProxyHeader::XForwardedFor, &[&padded(ELEMENT_MAX + 1)]);
        assert_eq!(over, [Hop::Unreadable]);
    }

    /// Text out of the characters that mean something here.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(b",;=\"\\[]:.%_- \tforFOR".to_vec()),
            2 => prop::sample::select(b"0123456789abcdef".to_vec()),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..80)
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_hop_comes_from_nowhere(lines in prop::collection::vec(text(), 0..4)) {
            let bytes: usize = lines.iter().map(Vec::len).sum();
            for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
                let hops = header.hops(lines.iter().map(Vec::as_slice)).count();
                prop_assert!(hops <= bytes + lines.len());
            }
        }

        #[test]
        fn what_stands_left_of_a_hop_changes_nothing(left in text(), address in any::<IpAddr>(), port in any::<u16>()) {
            let socket = std::net::SocketAddr::new(address, port);
            for (header, own) in [
                (ProxyHeader::XForwardedFor, socket.to_string()),
                (ProxyHeader::XForwardedFor, address.to_string()),
                (ProxyHeader::Forwarded, format!("for=\"{socket}\";proto=https")),
                (ProxyHeader::Forwarded, format!("host=\"\\\"a\";for=\"{socket}\"")),
            ] {
                let line = [&left[..], b", ", own.as_bytes()].concat();
                let first = header.hops([&line[..]].into_iter()).next();
                prop_assert_eq!(first, Some(Hop::Address(address.to_canonical())));
            }
        }
    }
}
