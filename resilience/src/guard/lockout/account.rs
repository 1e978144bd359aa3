//! The account that a body names: read as the handler will read it, or not at all.
//!
//! Whoever could make this file see one account and the handler another would guess at the one and be locked out of the
//! other. So whatever two readers may take differently is refused: a key or a field that stands twice, another type than
//! text, bytes that are no text.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::policy::AccountField;

/// Where the account stands in a body, ready to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The tokens of a JSON pointer, decoded.
    Json(Vec<String>),
    Form(String),
}

impl Place {
    pub(crate) fn new(field: AccountField) -> Self {
        match field {
            AccountField::Json(pointer) => Self::Json(pointer.split('/').skip(1).map(decoded).collect()),
            AccountField::Form(field) => Self::Form(field.to_owned()),
        }
    }

    /// The account in this body; `None` if it is missing, repeated, empty or no text, or if the body cannot be read.
    pub(crate) fn account<'b>(&self, body: &'b [u8]) -> Option<Cow<'b, str>> {
        match self {
            Self::Json(path) => json(body, path).map(Cow::Owned),
            Self::Form(field) => form(body, field),
        }
        .filter(|account| !account.is_empty())
    }
}

/// A reference token of RFC 6901: `~1` before `~0`, so that `~01` is `~1`.
fn decoded(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn form<'b>(body: &'b [u8], field: &str) -> Option<Cow<'b, str>> {
    let mut values = form_urlencoded::parse(body).filter(|(name, _)| name == field);
    let (_, account) = values.next()?;
    // What is not UTF-8 decodes to this: a reader that decodes otherwise would see another account.
    let is_text = !account.contains(char::REPLACEMENT_CHARACTER);
    (values.next().is_none() && is_text).then_some(account)
}

fn json(body: &[u8], path: &[String]) -> Option<String> {
    // Of bytes, only those on the path would be checked.
    let text = std::str::from_utf8(body).ok()?;
    let mut document = serde_json::Deserializer::from_str(text);
    let account = Walk(path).deserialize(&mut document).ok()?;
    document.end().ok()?;
    Some(account)
}

/// Walks down a document; what stands beside the path is checked to be JSON, and skipped.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "a text" } else { "an object or an array" })
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        match self.0 {
            [] => Ok(text.to_owned()),
            _ => Err(E::custom("the path goes on")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let (head, tail) = self.0.split_first().ok_or_else(|| A::Error::custom("an object"))?;
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key != *head {
                map.next_value::<IgnoredAny>()?;
            } else if found.replace(map.next_value_seed(Walk(tail))?).is_some() {
                return Err(A::Error::custom("a key stands twice"));
            }
        }
        found.ok_or_else(|| A::Error::custom("nothing at this path"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<String, A::Error> {
        let (head, tail) = self.0.split_first().ok_or_else(|| A::Error::custom("an array"))?;
        let wanted = index(head).ok_or_else(|| A::Error::custom("no index"))?;
        for _ in 0..wanted {
            array.next_element::<IgnoredAny>()?.ok_or_else(|| A::Error::custom("too short"))?;
        }
        let found = array.next_element_seed(Walk(tail))?;
        while array.next_element::<IgnoredAny>()?.is_some() {}
        found.ok_or_else(|| A::Error::custom("too short"))
    }
}

/// An array index of RFC 6901: digits without leading zeros. `-`, the place behind the end, holds nothing.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with(['0', '+']);
    plain.then(|| token.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn at(pointer: &'static str, body: &str) -> Option<String> {
        Place::new(AccountField::Json(pointer))
            .account(body.as_bytes())
            .map(Cow::into_owned)
    }

    fn field(body: &[u8]) -> Option<String> {
        let place = Place::new(AccountField::Form("username"));
        place.account(body).map(Cow::into_owned)
    }

    #[test]
    fn json_accounts_are_found() {
        for (pointer, body) in [
            ("/username", r#"{"username":"ada"}"#),
            ("/username", r#" {"x":[1,{"username":"eve"}],"username":"ada","y":null} "#),
            ("/username", r#"{"\u0075sername":"\u0061da"}"#),
            ("/user/name", r#"{"user":{"id":7,"name":"ada"}}"#),
            ("/users/1/name", r#"{"users":[0,{"name":"ada"},{"name":"eve"}]}"#),
            ("/0", r#"["ada"]"#),
            ("/0", r#"{"0":"ada"}"#),
            ("/a~1b/m~0n/~01", r#"{"a/b":{"m~n":{"~1":"ada"}}}"#),
            ("/", r#"{"":"ada"}"#),
            ("/username", r#"{"password":"a","password":"b","username":"ada"}"#),
        ] {
            assert_eq!(at(pointer, body).as_deref(), Some("ada"), "{pointer} in {body}");
        }
    }

    #[test]
    fn what_two_readers_may_take_differently_is_no_account() {
        for (pointer, body) in [
            ("/username", ""),
            ("/username", "ada"),
            ("/username", r#""ada""#),
            ("/username", "{}"),
            ("/username", r#"{"username":""}"#),
            ("/username", r#"{"username":null}"#),
            ("/username", r#"{"username":7}"#),
            ("/username", r#"{"username":["ada"]}"#),
            ("/username", r#"{"username":{"username":"ada"}}"#),
            ("/username", r#"{"username":"ada","username":"eve"}"#),
            ("/username", r#"{"username":"ada","\u0075sername":"eve"}"#),
            ("/username", r#"{"username":"ada","username":null}"#),
            ("/user/name", r#"{"user":{"name":"ada"},"user":{}}"#),
            ("/username", r#"{"username":"ada"} {"username":"eve"}"#),
            ("/username", r#"{"username":"ada"}x"#),
            ("/username", r#"{"username":"ada""#),
            ("/username", r#"{"username":"\ud800"}"#),
            ("/username", "\u{feff}{\"username\":\"ada\"}"),
            ("/username", "{'username':'ada'}"),
            ("/users/01", r#"{"users":["eve","ada"]}"#),
            ("/users/+1", r#"{"users":["eve","ada"]}"#),
            ("/users/-", r#"{"users":["eve","ada"]}"#),
            ("/users/2", r#"{"users":["eve","ada"]}"#),
            ("/users/99999999999999999999", r#"{"users":["eve","ada"]}"#),
            ("/users/", r#"{"users":["eve","ada"]}"#),
        ] {
            assert_eq!(at(pointer, body), None, "{pointer} in {body}");
        }
        let place = Place::new(AccountField::Json("/username"));
        assert_eq!(place.account(b"{\"username\":\"ada\",\"x\":\"\xff\"}"), None);
    }

    #[test]
    fn form_accounts_stand_once() {
        for body in [
            &b"username=ada"[..],
            b"password=x&username=ada&",
            b"%75sername=%61da",
            b"password=%FF&username=ada",
        ] {
            assert_eq!(field(body).as_deref(), Some("ada"), "{body:?}");
        }
        assert_eq!(field(b"username=ada+lovelace%21").as_deref(), Some("ada lovelace!"));
        for body in [
            &b""[..],
            b"username",
            b"username=",
            b"Username=ada",
            b"username=ada&username=eve",
            b"username=ada&%75sername=eve",
            b"username=ada&username",
            b"username=%FF",
            b"username=\xff",
        ] {
            assert_eq!(field(body), None, "{body:?}");
        }
    }

    /// Documents in which keys often meet the path.
    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[ab01~/]{0,2}", inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    fn encoded(tokens: &[String]) -> String {
        let encode = |token: &String| format!("/{}", token.replace('~', "~0").replace('/', "~1"));
        tokens.iter().map(encode).collect()
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in any::<Vec<u8>>(), json in r#"[\[\]{}":,a0 \\]{0,64}"#) {
            for bytes in [&body[..], json.as_bytes()] {
                let _ = Place::Json(vec!["a".into(), "0".into()]).account(bytes);
                let _ = Place::Form("a".into()).account(bytes);
            }
        }

        #[test]
        fn the_pointer_is_read_as_serde_json_reads_it(
            document in document(),
            tokens in prop::collection::vec("[ab01~/]{0,2}", 1..4),
        ) {
            let body = document.to_string();
            let found = Place::Json(tokens.clone()).account(body.as_bytes()).map(Cow::into_owned);
            let expected = document.pointer(&encoded(&tokens)).and_then(Value::as_str);
            prop_assert_eq!(found.as_deref(), expected.filter(|account| !account.is_empty()));
        }

        #[test]
        fn an_account_that_was_written_is_found(
            account in "\\PC{1,20}",
            others in prop::collection::btree_map("[a-z]{1,8}", any::<String>(), 0..4),
        ) {
            let mut object: Map<_, _> = others.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
            object.insert("username".into(), account.clone().into());
            let body = Value::Object(object).to_string();
            let found = Place::new(AccountField::Json("/username")).account(body.as_bytes()).map(Cow::into_owned);
            prop_assert_eq!(found.as_deref(), Some(&*account));

            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(others.iter().filter(|(name, _)| *name != "username"));
            let body = form.append_pair("username", &account).finish();
            prop_assert_eq!(field(body.as_bytes()), Some(account));
        }
    }
}
