//! All mistakes of one attribute, and the words that mend them.

use proc_macro2::TokenStream;
use syn::{Error, Result};

/// Collects mistakes so that one compile shows them all.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or `None` after noting the mistake.
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether nothing was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_compile_errors(self) -> TokenStream {
        self.0.map(Error::into_compile_error).unwrap_or_default()
    }

    /// What was noted, in order.
    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        self.0.into_iter().flatten().map(|error| error.to_string()).collect()
    }
}

/// "did you mean …?" if one of the accepted words is near, else the list of them.
pub(crate) fn advice(word: &str, accepted: &[&str]) -> String {
    match nearest(word, accepted) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("accepted here: {}", list(accepted)),
    }
}

/// `` `a`, `b`, `c` ``
pub(crate) fn list(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The accepted word that a slip of the keyboard or another spelling would have made of `word`.
pub(crate) fn nearest<'a>(word: &str, accepted: &[&'a str]) -> Option<&'a str> {
    let word = skeleton(word);
    accepted
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &skeleton(candidate)), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(4))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What remains of a word once case and separators are taken away: `Fail-Closed` and `fail_closed` are one.
pub(crate) fn skeleton(word: &str) -> String {
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARDS: &[&str] = &["auth", "flag", "rate_limit", "lockout", "deadline", "breaker", "guard"];

    #[test]
    fn slips_and_other_spellings_find_their_word() {
        for (word, meant) in [
            ("rate_limt", "rate_limit"),
            ("ratelimit", "rate_limit"),
            ("rateLimit", "rate_limit"),
            ("rate_limits", "rate_limit"),
            ("auht", "auth"),
            ("Auth", "auth"),
            ("flags", "flag"),
            ("deadlines", "deadline"),
            ("braeker", "breaker"),
            ("lock_out", "lockout"),
            ("logout", "lockout"),
        ] {
            assert_eq!(nearest(word, GUARDS), Some(meant), "{word}");
        }
    }

    #[test]
    fn strangers_find_none() {
        for word in ["", "_", "x", "retry", "priority", "concurrency", "r#type", "größe"] {
            assert_eq!(nearest(word, GUARDS), None, "{word}");
        }
    }

    #[test]
    fn advice_suggests_or_lists() {
        assert_eq!(advice("flga", &["flag", "auth"]), "did you mean `flag`?");
        assert_eq!(advice("retry", &["flag", "auth"]), "accepted here: `flag`, `auth`");
    }

    #[test]
    fn every_mistake_is_reported() {
        let mut errors = Errors::default();
        assert!(errors.keep(Ok(1)).is_some());
        for message in ["first", "second", "third"] {
            let mistake: Result<()> = Err(Error::new(proc_macro2::Span::call_site(), message));
            assert!(errors.keep(mistake).is_none());
        }
        assert_eq!(errors.messages(), ["first", "second", "third"]);
    }
}
