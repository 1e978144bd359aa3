//! Tokens to spanned, untyped arguments.
//!
//! The grammar is one rule, used for the attribute and inside each guard: entries between commas, an entry being
//! `name = value`, `name(entries)` or a bare value. Commas are found first, so a mistake in one entry hides no other.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::Error;

use crate::errors::{self, Errors};

/// What stands between two commas.
#[derive(Debug)]
pub(crate) enum Entry {
    /// `name = value`
    Assigned(Ident, Value),
    /// `name(…)`
    Called(Ident, Group),
    /// A literal, a path, or a mistake.
    Bare(Value),
}

/// The tokens of one value, none if it was left out.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    tokens: TokenStream,
    /// Where to point if there are no tokens to point at.
    near: Span,
}

impl Value {
    pub(crate) fn tokens(&self) -> TokenStream {
        self.tokens.clone()
    }

    /// The value as one bare word, such as `ip`.
    pub(crate) fn word(&self) -> Option<Ident> {
        syn::parse2(self.tokens()).ok()
    }

    /// The value as a word with one value of its own, such as `header("x-tenant")`.
    pub(crate) fn call(&self) -> Option<(Ident, Self)> {
        let tokens: Vec<_> = self.tokens().into_iter().collect();
        match tokens.as_slice() {
            [TokenTree::Ident(name), TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                Some((name.clone(), value(&inner, group.span())))
            }
            _ => None,
        }
    }

    /// An error that underlines the value.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        if self.tokens.is_empty() {
            Error::new(self.near, message)
        } else {
            Error::new_spanned(&self.tokens, message)
        }
    }
}

/// Splits an argument list into its entries.
pub(crate) fn entries(list: TokenStream, errors: &mut Errors) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut segment = Vec::new();
    for token in list {
        match token {
            TokenTree::Punct(comma) if comma.as_char() == ',' => {
                if segment.is_empty() {
                    errors.push(Error::new(comma.span(), "nothing stands before this comma: remove it"));
                }
                read(std::mem::take(&mut segment), &mut entries, errors);
            }
            token => segment.push(token),
        }
    }
    read(segment, &mut entries, errors);
    entries
}

/// Reads the entries of one segment: one, or more where a comma was forgotten.
fn read(segment: Vec<TokenTree>, entries: &mut Vec<Entry>, errors: &mut Errors) {
    let mut rest = unwrapped(segment);
    while let Some(first) = rest.first() {
        let (entry, length) = first_entry(&rest, first.span());
        entries.push(entry);
        rest.drain(..length);
        if let Some(next) = rest.first() {
            errors.push(Error::new(next.span(), "expected `,` before this"));
        }
    }
}

/// The entry at the start of `tokens`, and how many of them it takes (at least one).
fn first_entry(tokens: &[TokenTree], start: Span) -> (Entry, usize) {
    match tokens {
        [TokenTree::Ident(name), TokenTree::Punct(equals), rest @ ..] if equals.as_char() == '=' => {
            let length = value_length(rest);
            let value = value(&rest[..length], equals.span());
            (Entry::Assigned(name.clone(), value), 2 + length)
        }
        [TokenTree::Ident(name), TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Parenthesis => {
            (Entry::Called(name.clone(), group.clone()), 2)
        }
        _ => {
            let length = value_length(tokens);
            (Entry::Bare(value(&tokens[..length], start)), length)
        }
    }
}

/// A literal is a whole value unless an operator follows, so another word after it belongs to the next entry.
fn value_length(tokens: &[TokenTree]) -> usize {
    match tokens {
        [TokenTree::Literal(_), TokenTree::Ident(_) | TokenTree::Literal(_), ..] => 1,
        _ => tokens.len(),
    }
}

fn value(tokens: &[TokenTree], near: Span) -> Value {
    Value {
        tokens: unwrapped(tokens.to_vec()).into_iter().collect(),
        near,
    }
}

/// Takes off the invisible delimiters in which `macro_rules!` hands over its fragments.
fn unwrapped(mut tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    while let [TokenTree::Group(group)] = tokens.as_slice()
        && group.delimiter() == Delimiter::None
    {
        tokens = group.stream().into_iter().collect();
    }
    tokens
}

/// The arguments of one guard, sorted into values by position and options by name.
#[derive(Debug)]
pub(crate) struct Arguments {
    positional: std::vec::IntoIter<Value>,
    options: Vec<(Ident, Value)>,
    /// Options that were meant but not written right, reported already.
    slips: Vec<String>,
    /// Where to point if something is missing.
    pub(crate) span: Span,
}

impl Arguments {
    /// Sorts the arguments of `guard`, which takes `positions` values and the named `accepted` options.
    pub(crate) fn parse(guard: &Ident, list: &Group, positions: usize, accepted: &[&str], errors: &mut Errors) -> Self {
        let mut positional = Vec::new();
        let mut options: Vec<(Ident, Value)> = Vec::new();
        let mut slips = Vec::new();
        for entry in entries(list.stream(), errors) {
            match entry {
                Entry::Assigned(name, _) | Entry::Called(name, _) if !accepted.contains(&&*name.to_string()) => {
                    let word = name.to_string();
                    errors.push(Error::new(name.span(), no_option(guard, &word, accepted)));
                    slips.extend(errors::nearest(&word, accepted).map(str::to_owned));
                }
                Entry::Called(name, _) => {
                    errors.push(Error::new(
                        name.span(),
                        format!("`{name}` takes its value after an equals sign: write `{name} = …`"),
                    ));
                    slips.push(name.to_string());
                }
                Entry::Assigned(name, _) if options.iter().any(|(other, _)| *other == name) => {
                    errors.push(Error::new(
                        name.span(),
                        format!("`{name}` stands twice in this `{guard}`: keep one of them"),
                    ));
                }
                Entry::Assigned(name, value) => options.push((name, value)),
                Entry::Bare(value) if positional.len() == positions => errors.push(value.error(format!(
                    "`{guard}` has all its values already; options go by name: {}",
                    errors::list(accepted)
                ))),
                Entry::Bare(value) => positional.push(value),
            }
        }
        Self {
            positional: positional.into_iter(),
            options,
            slips,
            span: guard.span(),
        }
    }

    /// The next value by position.
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.positional.next()
    }

    /// The value of an option, if it was written.
    pub(crate) fn option(&self, name: &str) -> Option<&Value> {
        self.options
            .iter()
            .find_map(|(option, value)| (option == name).then_some(value))
    }

    /// Whether an option was written, right or wrong: then nobody needs to hear that it is missing.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.option(name).is_some() || self.slips.iter().any(|slip| slip == name)
    }
}

/// Says that a guard does not take this option, and why where somebody may well want it.
fn no_option(guard: &Ident, word: &str, accepted: &[&str]) -> String {
    if guard == "auth" && word == "mode" {
        return "`auth` has no `mode`: one that only observes lets everybody in, with or without a key; for a handler that \
                serves strangers too, drop `auth`"
            .into();
    }
    format!("`{guard}` has no option `{word}`: {}", errors::advice(word, accepted))
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn shapes(list: TokenStream) -> (Vec<String>, Vec<String>) {
        let mut errors = Errors::default();
        let shapes = entries(list, &mut errors)
            .into_iter()
            .map(|entry| match entry {
                Entry::Assigned(name, value) => format!("{name} = {}", value.tokens()),
                Entry::Called(name, group) => format!("{name}({})", group.stream()),
                Entry::Bare(value) => value.tokens().to_string(),
            })
            .collect();
        (shapes, errors.messages())
    }

    #[test]
    fn entries_stand_between_commas_and_may_end_with_one() {
        let (found, errors) = shapes(quote!(auth = "fail_closed", flag("a", default = false), 30, a::B,));
        assert_eq!(
            found,
            [
                "auth = \"fail_closed\"",
                "flag(\"a\" , default = false)",
                "30",
                "a :: B"
            ]
        );
        assert!(errors.is_empty());
        assert_eq!(shapes(quote!()), (vec![], vec![]));
    }

    #[test]
    fn a_stray_comma_hides_nothing() {
        let (found, errors) = shapes(quote!(, 1,, 2));
        assert_eq!(found, ["1", "2"]);
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn a_forgotten_comma_hides_nothing() {
        let (found, errors) = shapes(quote!(auth = "fail_closed" flag("a") rate_limit(30 60), deadline = "2s"));
        assert_eq!(
            found,
            [
                "auth = \"fail_closed\"",
                "flag(\"a\")",
                "rate_limit(30 60)",
                "deadline = \"2s\""
            ]
        );
        assert_eq!(errors, ["expected `,` before this"; 2]);
    }

    #[test]
    fn invisible_groups_are_looked_through() {
        let inner = TokenTree::Group(Group::new(Delimiter::None, quote!("2s")));
        assert_eq!(shapes(quote!(deadline = #inner)).0, ["deadline = \"2s\""]);
    }
}
