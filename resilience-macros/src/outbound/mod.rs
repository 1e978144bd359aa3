//! `#[outbound]`, by the same steps as `#[resilient]`: `read` (entries to `model`), `function` (the fn), `check` (rules
//! across options and fn), `expand` (code).

mod check;
mod expand;
mod function;
mod model;
mod read;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::quote;

use self::{function::Function, model::Outbound};
use crate::{args, errors::Errors};

/// The fn with its strategies around the body; or all mistakes, and the fn without them.
pub(crate) fn outbound(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    if attribute.is_empty() {
        check::empty(&mut errors);
    }
    let outbound = Outbound::parse(args::entries(attribute, &mut errors), &mut errors);
    check::options(&outbound, &mut errors);
    let Some(function) = errors.keep(syn::parse2::<Function>(item.clone())) else {
        let errors = errors.into_compile_errors();
        return quote!(#errors #item);
    };
    check::function(&function, &outbound, &mut errors);
    if errors.is_empty() {
        expand::expand(&outbound, &function)
    } else {
        let (errors, item) = (errors.into_compile_errors(), function.plain());
        quote!(#errors #item)
    }
}
