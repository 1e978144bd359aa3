//! A checked attribute and its fn to code: one static, one call, and the body in a block of its own.
//!
//! ```text
//! async fn quote(order: Order) -> Result<Quote, Error> {
//!     static __RESILIENT_OUTBOUND: Outbound = …;
//!     let attempts = again(move || {          or `once`, with the block alone, if there is no `retry`
//!         let order = copy(&order);
//!         async move {
//!             if let Some(answer) = none::<Result<Quote, Error>>() { return answer; }
//!             let order = order;
//!             { … }                           `?` and `return` end the attempt, and no more
//!         }
//!     });
//!     call(&__RESILIENT_OUTBOUND, attempts, classify, fallback).await
//! }
//! ```

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{ExprPath, GenericArgument, PathArguments, Type, ext::IdentExt, parse_quote, spanned::Spanned};

use super::{
    function::{Binding, Function},
    model::{Bulkhead, Outbound, Retry, parsed},
};
use crate::expand::{duration, private};

/// The fn with the strategies around its body.
pub(crate) fn expand(outbound: &Outbound, function: &Function) -> TokenStream {
    let private = private();
    let Function { attributes, vis, .. } = function;
    let (sig, bindings) = function.signature();
    let name = sig.ident.unraw().to_string();
    let spec = spec(outbound, &name, &private);
    let classify = choice(parsed(outbound.classify.as_ref()), "AnyError", &private);
    let fallback = choice(parsed(outbound.fallback.as_ref()), "NoFallback", &private);
    let attempt = attempt(function, &bindings, &private);
    // Errors about what is returned point at the return type.
    let at_output = respanned(&private, output_span(function));
    let attempts = if outbound.retry.is_some() {
        let copies = bindings.iter().map(|Binding { name, .. }| {
            let span = name.span().resolved_at(Span::mixed_site());
            quote_spanned!(span=> let #name = #private::copy(&#name);)
        });
        quote_spanned!(output_span(function)=> #at_output::again(move || { #(#copies)* #attempt }))
    } else {
        quote_spanned!(output_span(function)=> #at_output::once(#attempt))
    };
    quote! {
        #(#attributes)*
        #vis #sig {
            static __RESILIENT_OUTBOUND: #private::Outbound = #spec;
            #private::call(&__RESILIENT_OUTBOUND, #attempts, #classify, #fallback).await
        }
    }
}

/// One attempt: the body in a block of its own, with the parameters taken apart as the fn does.
fn attempt(function: &Function, bindings: &[Binding], private: &TokenStream) -> TokenStream {
    let output = function.output().map(erased).unwrap_or(parse_quote!(()));
    let span = output_span(function);
    let body = &function.body;
    let bindings = bindings
        .iter()
        .map(|Binding { name, pattern }| quote!(let #pattern = #name;));
    // Never true: it tells `?` and `return` in the body what type the block has.
    let hint = quote_spanned!(span=> if let ::core::option::Option::Some(__resilient_answer) = #private::none::<#output>() {
        return __resilient_answer;
    });
    quote_spanned!(span=> async move {
        #hint
        #(#bindings)*
        #body
    })
}

/// The place of the return type.
fn output_span(function: &Function) -> Span {
    let span = function.output().map_or_else(Span::call_site, Spanned::span);
    span.resolved_at(Span::mixed_site())
}

/// The tokens at another place.
fn respanned(tokens: &TokenStream, span: Span) -> TokenStream {
    let tokens = tokens.clone().into_iter();
    tokens
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}

/// The type with `_` for each `impl Trait`, which has no name in a body.
fn erased(ty: &Type) -> Type {
    let mut ty = ty.clone();
    erase(&mut ty);
    ty
}

fn erase(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = parse_quote!(_),
        Type::Group(group) => erase(&mut group.elem),
        Type::Paren(paren) => erase(&mut paren.elem),
        Type::Reference(reference) => erase(&mut reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            erase(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

/// A fn of the user's, at its own place in the code, or what stands for none.
fn choice(path: Option<&ExprPath>, none: &str, private: &TokenStream) -> TokenStream {
    match path {
        Some(path) => quote!(#path),
        None => {
            let none = Ident::new(none, Span::call_site());
            quote!(#private::#none)
        }
    }
}

fn spec(outbound: &Outbound, name: &str, private: &TokenStream) -> TokenStream {
    let calls = [
        parsed(outbound.breaker.as_ref()).map(|breaker| {
            let breaker = breaker.as_str();
            quote!(.with_breaker(#breaker))
        }),
        parsed(outbound.timeout.as_ref()).map(|timeout| {
            let timeout = duration(*timeout, private);
            quote!(.with_timeout(#timeout))
        }),
        parsed(outbound.attempt_timeout.as_ref()).map(|timeout| {
            let timeout = duration(*timeout, private);
            quote!(.with_attempt_timeout(#timeout))
        }),
        outbound.retry.as_ref().map(|retry| {
            let retry = self::retry(retry, private);
            quote!(.with_retry(#retry))
        }),
        outbound.bulkhead.as_ref().map(|bulkhead| {
            let bulkhead = self::bulkhead(bulkhead, private);
            quote!(.with_bulkhead(#bulkhead))
        }),
    ];
    let calls = calls.into_iter().flatten();
    quote!(#private::Outbound::new(::core::module_path!(), #name) #(#calls)*)
}

fn retry(retry: &Retry, private: &TokenStream) -> TokenStream {
    let retries = retry.retries.map_or(0, |retries| retries.get());
    let backoff = parsed(retry.backoff.as_ref()).map(|backoff| {
        let backoff = duration(*backoff, private);
        quote!(.with_backoff(#backoff))
    });
    let max_backoff = parsed(retry.max_backoff.as_ref()).map(|backoff| {
        let backoff = duration(*backoff, private);
        quote!(.with_max_backoff(#backoff))
    });
    let budget = parsed(retry.budget.as_ref()).map(|budget| {
        let budget = budget.as_str();
        quote!(.with_budget(#budget))
    });
    quote!(#private::OutboundRetry::new(#retries) #backoff #max_backoff #budget)
}

fn bulkhead(bulkhead: &Bulkhead, private: &TokenStream) -> TokenStream {
    let limit = bulkhead.limit.map_or(0, |limit| limit.get());
    let queue = parsed(bulkhead.queue.as_ref()).map(|queue| {
        let queue = queue.get();
        quote!(.with_queue(#queue))
    });
    let queue_timeout = parsed(bulkhead.queue_timeout.as_ref()).map(|timeout| {
        let timeout = duration(*timeout, private);
        quote!(.with_queue_timeout(#timeout))
    });
    let name = parsed(bulkhead.name.as_ref()).map(|name| {
        let name = name.as_str();
        quote!(.with_name(#name))
    });
    quote!(#private::OutboundBulkhead::new(#limit) #queue #queue_timeout #name)
}
