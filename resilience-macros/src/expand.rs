//! A checked policy and its fn to code: one struct, one static, one call.
//!
//! ```text
//! struct checkout;                            the endpoint, as poem's own `#[handler]` would make it
//! const _: () = {
//!     async fn checkout(…) { … }              the user's fn under its own name: spans and recursion see it
//!     struct __ResilientMarker;               its type name tells the fn in which the handler is
//!     static __RESILIENT_POLICY: Policy = …;
//!     const _: () = {
//!         #[handler]
//!         async fn __resilient_handler(…)     poem's extraction, around a call of the user's fn
//!         impl Endpoint for checkout          the guards, around poem's extraction
//!     };
//! };
//! ```

use std::time::Duration;

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Ident, Signature, ext::IdentExt, spanned::Spanned};

use crate::{
    handler::Handler,
    model::{
        Algorithm, Auth, Breaker, Concurrency, Flag, Key, Lockout, LockoutKey, Mode, Numbers, OnOutage, Policy,
        Priority, RateLimit,
    },
    value::KeyPath,
};

/// The guarded handler.
pub(crate) fn expand(policy: &Policy, handler: &Handler) -> TokenStream {
    let private = private();
    let Handler {
        attributes,
        vis,
        sig,
        body,
        ..
    } = handler;
    let name = handler.name();
    let (cfg, docs, deprecated) = (&attributes.cfg, &attributes.docs, &attributes.deprecated);
    let (lints, expectations, inner) = (&attributes.lints, &attributes.expectations, &attributes.inner);
    let endpoint = endpoint_struct(handler);
    let policy = policy_value(policy, &name.unraw().to_string(), &private);
    let extraction = extraction(handler, &private);
    quote! {
        #(#cfg)* #(#docs)* #(#deprecated)* #(#lints)*
        #[allow(non_camel_case_types)]
        #vis #endpoint

        #(#cfg)* #(#lints)* #(#expectations)*
        const _: () = {
            #(#inner)*
            #sig #body

            #[allow(dead_code)]
            struct __ResilientMarker;
            static __RESILIENT_POLICY: #private::Policy =
                #policy.with_marker(::core::any::type_name::<__ResilientMarker>);
            #private::register!(&__RESILIENT_POLICY);

            const _: () = { #extraction };
        };
    }
}

/// The path of the runtime's private surface, whatever name its crate has here.
pub(crate) fn private() -> TokenStream {
    let name = match crate_name("resilience") {
        Ok(FoundCrate::Name(name)) => Ident::new(&name, Span::call_site()),
        // Its own doctests and examples; also builds without Cargo, where the name is all there is to go by.
        Ok(FoundCrate::Itself) | Err(_) => Ident::new("resilience", Span::call_site()),
    };
    quote!(::#name::__private)
}

/// The struct that stands for the handler, generic as the fn is, with no bounds.
fn endpoint_struct(handler: &Handler) -> TokenStream {
    let name = handler.name();
    let parameters: Vec<_> = handler.type_parameters().collect();
    if parameters.is_empty() {
        quote!(struct #name;)
    } else {
        quote! {
            struct #name<#(#parameters),*> {
                __resilient: ::core::marker::PhantomData<fn() -> (#(#parameters,)*)>,
            }
        }
    }
}

/// poem's handler around the user's fn, and the endpoint around poem's handler.
fn extraction(handler: &Handler, private: &TokenStream) -> TokenStream {
    let name = handler.name();
    let attribute = &handler.attributes.handler;
    let types: Vec<_> = handler.extractors().collect();
    let arguments: Vec<_> = (0..types.len())
        .map(|index| format_ident!("__resilient_{index}"))
        .collect();
    let shadows = shadows(name, types.len());
    // Resolved past the locals of poem's expansion, so that a handler may be called `req` itself.
    let mut user_fn = name.clone();
    user_fn.set_span(name.span().resolved_at(Span::mixed_site()));

    let parameters: Vec<_> = handler.type_parameters().collect();
    let (turbofish, poem_handler) = if parameters.is_empty() {
        (None, quote!(__resilient_handler))
    } else {
        (
            Some(quote!(::<#(#parameters),*>)),
            quote!(<__resilient_handler<#(#parameters),*> as ::core::default::Default>::default()),
        )
    };
    let Signature {
        asyncness,
        generics,
        output,
        ..
    } = &handler.sig;
    let await_it = asyncness.as_ref().map(|_| quote!(.await));
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    // An impl for a deprecated struct is a use of it.
    let allow = (!handler.attributes.deprecated.is_empty()).then(|| quote!(#[allow(deprecated)]));
    let default = (!parameters.is_empty()).then(|| {
        quote! {
            #allow
            impl<#(#parameters),*> ::core::default::Default for #name #type_generics {
                fn default() -> Self {
                    Self { __resilient: ::core::marker::PhantomData }
                }
            }
        }
    });

    quote! {
        #shadows

        #(#attribute)*
        #asyncness fn __resilient_handler #impl_generics (#(#arguments: #types),*) #output #bounds {
            #user_fn #turbofish (#(#arguments),*) #await_it
        }

        #default

        #allow
        impl #impl_generics #private::Endpoint for #name #type_generics #bounds {
            type Output = #private::Response;

            async fn call(&self, __resilient_request: #private::Request) -> #private::Result<#private::Response> {
                #private::run(&__RESILIENT_POLICY, __resilient_request, #poem_handler).await
            }
        }
    }
}

/// Empty fns over the names of the locals in poem's expansion.
///
/// A `let` may not shadow a unit struct, which every handler in scope is, but it may shadow a fn. Without these a
/// handler called `req` breaks all others of its module.
fn shadows(name: &Ident, parameters: usize) -> TokenStream {
    let locals: Vec<_> = ["req", "body", "res"]
        .map(|local| format_ident!("{local}"))
        .into_iter()
        .chain((0..parameters).map(|index| format_ident!("p{index}")))
        .filter(|local| local != name)
        .collect();
    quote!(#(#[allow(dead_code)] fn #locals() {})*)
}

fn policy_value(policy: &Policy, name: &str, private: &TokenStream) -> TokenStream {
    let rate_limits = list(&policy.rate_limits, |quota| rate_limit(quota, private));
    let flags = list(&policy.flags, |flag| self::flag(flag, private));
    let guards = &policy.guards;
    let lockouts = list(&policy.lockouts, |lockout| self::lockout(lockout, private));
    let calls = [
        rate_limits.map(|quotas| quote!(.with_rate_limits(#quotas))),
        flags.map(|flags| quote!(.with_flags(#flags))),
        policy.auth.as_ref().map(|auth| {
            let auth = self::auth(auth, private);
            quote!(.with_auth(#auth))
        }),
        // A plain borrow, not a `const` block: a constant may not refer to a static with interior mutability.
        (!guards.is_empty()).then(|| {
            let guards = guards.iter().map(|guard| quote_spanned!(guard.span()=> &#guard));
            quote!(.with_guards(&[#(#guards),*]))
        }),
        lockouts.map(|lockouts| quote!(.with_lockouts(#lockouts))),
        policy.concurrency.as_ref().and_then(|slots| {
            let slots = concurrency(slots, private)?;
            Some(quote!(.with_concurrency(#slots)))
        }),
        policy.priority.map(|priority| {
            let priority = self::priority(priority);
            quote!(.with_priority(#private::Priority::#priority))
        }),
        deadline(policy.deadline, private),
        policy.breaker.as_ref().map(|breaker| {
            let breaker = self::breaker(breaker);
            quote!(.with_breaker(#private::BreakerChoice::#breaker))
        }),
    ];
    let calls = calls.into_iter().flatten();
    quote!(#private::Policy::new(::core::module_path!(), #name) #(#calls)*)
}

/// A `'static` slice of guards, none if there are none.
fn list<T>(guards: &[T], value: impl Fn(&T) -> TokenStream) -> Option<TokenStream> {
    let values = guards.iter().map(value);
    (!guards.is_empty()).then(|| quote!(const { &[#(#values),*] }))
}

fn rate_limit(quota: &RateLimit, private: &TokenStream) -> TokenStream {
    let key = match &quota.key {
        Key::Ip => quote!(Ip),
        Key::User => quote!(User),
        Key::Global => quote!(Global),
        Key::Header(name) => {
            let name = name.as_str();
            quote!(Header(#name))
        }
        Key::Custom(key) => {
            let key = key_fn(key, private);
            quote!(Custom(#key))
        }
    };
    let cost = quota.cost.map(|cost| {
        let cost = cost.get();
        quote!(.with_cost(#cost))
    });
    let on_outage = on_outage(quota.on_outage);
    let local_share = quota.local_share.map(|percent| quote!(.with_local_share(#percent)));
    let begin = match (&quota.numbers, &quota.name) {
        (Some(numbers), name) => {
            let numbers = self::numbers(numbers, private);
            let name = name.as_ref().map(|name| {
                let name = name.as_str();
                quote!(.with_name(#name))
            });
            quote!(#numbers #name)
        }
        (None, name) => {
            let name = name.as_ref().map_or("", |name| name.as_str());
            quote!(#private::RateLimit::named(#name))
        }
    };
    let deadline = deadline(quota.deadline, private);
    let mode = mode(quota.mode, private);
    quote! {
        #begin
            .with_key(#private::Key::#key)
            .with_on_outage(#private::OnOutage::#on_outage)
            #cost
            #local_share
            #deadline
            #mode
    }
}

fn on_outage(on_outage: OnOutage) -> TokenStream {
    match on_outage {
        OnOutage::Open => quote!(FailOpen),
        OnOutage::Closed => quote!(FailClosed),
        OnOutage::Local => quote!(FailLocal),
    }
}

fn lockout(lockout: &Lockout, private: &TokenStream) -> TokenStream {
    let attempts = lockout.attempts.get();
    let durations = lockout
        .durations
        .iter()
        .map(|duration| self::duration(*duration, private));
    let key = match &lockout.key {
        LockoutKey::Ip => quote!(Ip),
        LockoutKey::User => quote!(User),
        LockoutKey::Json(pointer) => quote!(Account(#private::AccountField::Json(#pointer))),
        LockoutKey::Form(field) => quote!(Account(#private::AccountField::Form(#field))),
        LockoutKey::Custom(key) => {
            let key = key_fn(key, private);
            quote!(Custom(#key))
        }
    };
    let on_outage = on_outage(lockout.on_outage);
    let name = lockout.name.as_ref().map(|name| {
        let name = name.as_str();
        quote!(.with_name(#name))
    });
    let deadline = deadline(lockout.deadline, private);
    let mode = mode(lockout.mode, private);
    quote! {
        #private::Lockout::new(#attempts, const { &[#(#durations),*] }, #private::LockoutKey::#key)
            .with_on_outage(#private::OnOutage::#on_outage)
            #name
            #deadline
            #mode
    }
}

/// A fn of the user's own, under the path that the attribute gives.
fn key_fn(key: &KeyPath, private: &TokenStream) -> TokenStream {
    let KeyPath { path, written } = key;
    quote!(#private::KeyFn::new(#written, #path))
}

fn numbers(numbers: &Numbers, private: &TokenStream) -> TokenStream {
    let limit = numbers.limit.get();
    let window = duration(numbers.window, private);
    let algorithm = match numbers.algorithm {
        Algorithm::SlidingWindow => quote!(SlidingWindow),
        Algorithm::FixedWindow => quote!(FixedWindow),
        Algorithm::TokenBucket => quote!(TokenBucket),
    };
    let burst = numbers.burst.map(|burst| {
        let burst = burst.get();
        quote!(.with_burst(#burst))
    });
    quote!(#private::RateLimit::new(#limit, #window).with_algorithm(#private::Algorithm::#algorithm) #burst)
}

fn flag(flag: &Flag, private: &TokenStream) -> TokenStream {
    let (name, default, blocks_when) = (flag.name.as_str(), flag.default, flag.blocks_when);
    let stale = flag.stale.map(|stale| {
        let stale = duration(stale, private);
        quote!(.with_stale(#stale))
    });
    let deadline = deadline(flag.deadline, private);
    let mode = mode(flag.mode, private);
    quote!(#private::Flag::new(#name, #default).with_blocks_when(#blocks_when) #stale #deadline #mode)
}

fn auth(auth: &Auth, private: &TokenStream) -> TokenStream {
    let header = auth.header.as_ref().map(|header| {
        let header = header.as_str();
        quote!(.with_header(#header))
    });
    let deadline = deadline(auth.deadline, private);
    quote!(#private::Auth::fail_closed() #header #deadline)
}

/// `None` after a mistake, which is never expanded.
fn concurrency(slots: &Concurrency, private: &TokenStream) -> Option<TokenStream> {
    let limit = slots.limit?.get();
    let queue = slots.queue.map(|queue| {
        let queue = queue.get();
        quote!(.with_queue(#queue))
    });
    let timeout = slots.queue_timeout.map(|timeout| {
        let timeout = duration(timeout, private);
        quote!(.with_queue_timeout(#timeout))
    });
    let adaptive = slots.adaptive.then(|| quote!(.with_adaptive()));
    Some(quote!(#private::Concurrency::new(#limit) #queue #timeout #adaptive))
}

fn priority(priority: Priority) -> TokenStream {
    match priority {
        Priority::Critical => quote!(Critical),
        Priority::Default => quote!(Default),
        Priority::Background => quote!(Background),
    }
}

fn breaker(breaker: &Breaker) -> TokenStream {
    match breaker {
        Breaker::Shared => quote!(Shared),
        Breaker::PerOperation => quote!(PerOperation),
        Breaker::Named(name) => {
            let name = name.as_str();
            quote!(Named(#name))
        }
    }
}

fn mode(mode: Mode, private: &TokenStream) -> Option<TokenStream> {
    (mode == Mode::Observe).then(|| quote!(.with_mode(#private::Mode::Observe)))
}

fn deadline(deadline: Option<Duration>, private: &TokenStream) -> Option<TokenStream> {
    deadline.map(|deadline| {
        let deadline = duration(deadline, private);
        quote!(.with_deadline(#deadline))
    })
}

pub(crate) fn duration(duration: Duration, private: &TokenStream) -> TokenStream {
    // Bounded to 366 days when it was parsed.
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    quote!(#private::Duration::from_millis(#millis))
}
