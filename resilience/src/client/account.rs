//! One form for all spellings of an account.

use icu_casemap::CaseMapper;
use icu_normalizer::ComposingNormalizer;
use icu_properties::{CodePointSetData, props::DefaultIgnorableCodePoint};

/// The longest account that is looked at, in bytes.
const LONGEST: usize = 512;

/// An account that no attempt can be counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAccount {
    /// Nothing is left once white space is trimmed: all such attempts would share one tally.
    #[error("the account is empty")]
    Empty,
    /// It has more than 512 bytes.
    #[error("the account is longer than {LONGEST} bytes")]
    TooLong,
}

/// Trimmed, in NFKC and case-folded, by the Unicode standard's compatibility caseless matching (D146): folding may undo a
/// normal form and the other way round, so each is done twice. Invisible characters are left out wherever they are, since
/// databases ignore them too: default-ignorable code points such as a zero-width joiner, and control characters
/// (U+0000 to U+001F, U+007F to U+009F).
pub(super) fn canonical(account: &str) -> Result<String, InvalidAccount> {
    if account.len() > LONGEST {
        return Err(InvalidAccount::TooLong);
    }
    let (normal, case) = (ComposingNormalizer::new_nfkc(), CaseMapper::new());
    let invisible = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    let visible: String = account
        .chars()
        .filter(|c| !c.is_control() && !invisible.contains(*c))
        .collect();
    let mut canonical = normal.normalize(&visible).into_owned();
    for _ in 0..2 {
        canonical = normal.normalize(&case.fold_string(&canonical)).into_owned();
    }
    // Last, since a compatibility form may begin with a space.
    match canonical.trim() {
        "" => Err(InvalidAccount::Empty),
        canonical => Ok(canonical.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_account_meet() {
        for account in [
            "ada",
            "Ada",
            " ADA\t",
            "\u{ff41}\u{ff44}\u{ff41}",
            "\u{1d552}da",
            "\u{a0}ada",
            "ada\u{200d}",
            "a\u{ad}da",
            "\0ada",
            "a\u{7}da\u{1f}",
            "ada\u{7f}",
            "\u{80}a\u{9f}da",
            "a\r\nda",
        ] {
            assert_eq!(canonical(account).as_deref(), Ok("ada"), "{account:?}");
        }
        assert_eq!(canonical("Stra\u{df}e"), canonical("STRASSE"));
        assert_eq!(canonical("e\u{301}ve"), canonical("\u{c9}VE"));
        assert_ne!(canonical("ada"), canonical("\u{e4}da"));
    }

    #[test]
    fn what_is_empty_or_too_long_is_no_account() {
        for empty in ["", " ", "\t\n", "\u{3000}", "\0", "\u{85} \u{200d}"] {
            assert_eq!(canonical(empty), Err(InvalidAccount::Empty), "{empty:?}");
        }
        assert!(canonical(&"x".repeat(512)).is_ok());
        assert_eq!(canonical(&"x".repeat(513)), Err(InvalidAccount::TooLong));
    }

    proptest! {
        #[test]
        fn a_canonical_form_is_its_own(account in any::<String>()) {
            if let Ok(once) = canonical(&account) {
                match canonical(&once) {
                    Ok(twice) => prop_assert_eq!(twice, once),
                    Err(error) => prop_assert_eq!(error, InvalidAccount::TooLong),
                }
            }
        }

        #[test]
        fn case_tells_no_accounts_apart(account in "\\PC{1,20}") {
            // Where a case pair is not one of folding (the dotless i), the standard says so, and so do we.
            let folded = CaseMapper::new().fold_string(&account).into_owned();
            prop_assert_eq!(canonical(&account), canonical(&folded));
        }
    }
}
