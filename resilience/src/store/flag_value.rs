//! A flag that is kept as text, which operators write by hand.

use super::{StoreError, StoreErrorKind};

const ON: [&str; 8] = ["1", "true", "on", "yes", "y", "t", "enabled", "enable"];
const OFF: [&str; 8] = ["0", "false", "off", "no", "n", "f", "disabled", "disable"];

/// Characters of an unreadable value that an error shows, after escaping.
const SHOWN: usize = 32;

/// Reads the text of a flag, for stores that keep flags as text.
///
/// On are `1`, `true`, `on`, `yes`, `y`, `t`, `enabled` and `enable`; off are `0`, `false`, `off`, `no`, `n`, `f`, `disabled` and
/// `disable`. Case does not matter. White space and NUL characters around the word are ignored.
///
/// ```
/// use resilience::store::flag_value;
///
/// assert!(flag_value("On\n").unwrap());
/// assert!(flag_value("maybe").unwrap_err().is_unreadable());
/// ```
///
/// # Errors
///
/// An [unreadable](StoreError::is_unreadable) one for any other text. It lists these words, and shows up to 32 characters of
/// the text, escaped.
pub fn flag_value(text: impl AsRef<[u8]>) -> Result<bool, StoreError> {
    let text = text.as_ref();
    let word = std::str::from_utf8(text).map(|text| text.trim_matches(|c: char| c.is_whitespace() || c == '\0'));
    let is_one_of =
        |words: [&str; 8]| word.is_ok_and(|word| words.iter().any(|other| word.eq_ignore_ascii_case(other)));
    if is_one_of(ON) {
        Ok(true)
    } else if is_one_of(OFF) {
        Ok(false)
    } else {
        Err(unreadable(text))
    }
}

fn unreadable(text: &[u8]) -> StoreError {
    let mut escaped = text.escape_ascii().map(char::from);
    let mut shown: String = escaped.by_ref().take(SHOWN).collect();
    if escaped.next().is_some() {
        shown.push('…');
    }
    let (on, off) = (ON.join(", "), OFF.join(", "));
    let message = format!("the flag's value \"{shown}\" is unreadable: write one of {on} or one of {off}");
    StoreError::new(StoreErrorKind::Answered, message).unreadable()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_read_in_any_case_and_with_space_around_them() {
        for (words, on) in [(ON, true), (OFF, false)] {
            for word in words {
                for text in [
                    word.to_owned(),
                    word.to_uppercase(),
                    format!(" {word}\t"),
                    format!("{word}\r\n"),
                    format!("\0{word}\0\n"),
                    format!("\u{a0}\u{3000}{word}\u{2028}\u{85}"),
                ] {
                    assert_eq!(flag_value(&text).ok(), Some(on), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn any_other_text_is_unreadable_and_the_error_lists_the_words() {
        for text in ["", " ", "2", "o n", "\"on\"", "onn", "true;", "\u{ff11}", "кл"] {
            let error = flag_value(text).unwrap_err();
            assert!(error.is_unreadable(), "{text:?}");
            assert_eq!(error.kind(), StoreErrorKind::Answered);
            for word in [ON, OFF].concat() {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
        assert!(flag_value(b"\xffon").unwrap_err().to_string().contains(r#""\xffon""#));
    }

    proptest! {
        #[test]
        fn an_error_shows_little_of_the_value_and_no_control_characters(text in any::<Vec<u8>>()) {
            if let Err(error) = flag_value(&text) {
                let message = error.to_string();
                let shown = message.strip_prefix("the flag's value \"").unwrap();
                let (shown, _) = shown.rsplit_once("\" is unreadable").unwrap();
                prop_assert!(shown.chars().count() <= SHOWN + 1, "{}", shown);
                prop_assert!(shown.chars().all(|c| c == '…' || matches!(c, ' '..='~')), "{}", shown);
            }
        }
    }
}
