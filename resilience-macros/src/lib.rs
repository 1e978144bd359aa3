//! The `#[resilient]` attribute of the crate `resilience`, which re-exports it. Use it from there.
//!
//! The pipeline, one file a step: `args` (tokens to spanned entries), `value` (typed values), `model` (a policy that
//! cannot hold nonsense) and `handler` (the fn), `check` (rules across guards and fn), `expand` (code).

mod args;
mod check;
mod errors;
mod expand;
mod guards;
mod handler;
mod model;
mod value;

use proc_macro2::TokenStream;
use quote::quote;

use crate::{errors::Errors, handler::Handler, model::Policy};

/// DOC
#[proc_macro_attribute]
pub fn resilient(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    guarded(attribute.into(), item.into()).into()
}

/// The guarded handler; or all mistakes, and the item without its guards.
fn guarded(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    if attribute.is_empty() {
        check::empty(&mut errors);
    }
    let policy = Policy::parse(args::entries(attribute, &mut errors), &mut errors);
    check::policy(&policy, &mut errors);
    let Some(handler) = errors.keep(syn::parse2::<Handler>(item.clone())) else {
        let errors = errors.into_compile_errors();
        return quote!(#errors #item);
    };
    check::handler(&handler, &policy, &mut errors);
    if errors.is_empty() {
        expand::expand(&policy, &handler)
    } else {
        let (errors, item) = (errors.into_compile_errors(), handler.unguarded());
        quote!(#errors #item)
    }
}
