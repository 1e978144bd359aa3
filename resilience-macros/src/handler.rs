//! The fn under the attribute, its body unparsed.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, FnArg, GenericParam, Meta, Result, Signature, Token, Type, Visibility,
    parse::{Parse, ParseStream, Parser},
    parse_quote,
    punctuated::Punctuated,
    token::Brace,
};

/// A free fn with its attributes sorted by the item that they belong to.
pub(crate) struct Handler {
    pub(crate) attributes: Attributes,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
    /// All attributes, as they were written.
    written: Vec<Attribute>,
}

/// Where each attribute of the fn goes.
#[derive(Default)]
pub(crate) struct Attributes {
    /// `#[cfg]`: every item that is emitted.
    pub(crate) cfg: Vec<Attribute>,
    /// `#[doc]`: the struct, which is what others see.
    pub(crate) docs: Vec<Attribute>,
    /// `#[deprecated]`: the struct.
    pub(crate) deprecated: Vec<Attribute>,
    /// `#[allow]` and its kin: the struct and all that stands for the fn.
    pub(crate) lints: Vec<Attribute>,
    /// `#[expect]`: only what stands for the fn, since an expectation that is met once would fail elsewhere.
    pub(crate) expectations: Vec<Attribute>,
    /// `#[handler]`, in any of its spellings: the fn that extracts.
    pub(crate) handler: Vec<Attribute>,
    /// Further `#[resilient]`: nowhere, a mistake.
    pub(crate) resilient: Vec<Attribute>,
    /// All others: the user's fn.
    pub(crate) inner: Vec<Attribute>,
}

impl Handler {
    pub(crate) fn name(&self) -> &Ident {
        &self.sig.ident
    }

    /// The types of the parameters, in order.
    pub(crate) fn extractors(&self) -> impl Iterator<Item = &Type> {
        self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(&*parameter.ty),
            FnArg::Receiver(_) => None,
        })
    }

    /// The names of the type parameters, in order.
    pub(crate) fn type_parameters(&self) -> impl Iterator<Item = &Ident> {
        self.sig.generics.params.iter().filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            _ => None,
        })
    }

    /// The type parameters aside, the generics: those that poem's `#[handler]` has no answer to.
    pub(crate) fn foreign_generics(&self) -> impl Iterator<Item = &GenericParam> {
        let generics = self.sig.generics.params.iter();
        generics.filter(|parameter| !matches!(parameter, GenericParam::Type(_)))
    }

    /// The item without this crate's attribute, emitted beside errors so that whoever uses it still compiles.
    pub(crate) fn unguarded(&self) -> TokenStream {
        // Where poem's macro would only add errors of its own, the plain fn is what can be kept.
        let plain = self.foreign_generics().next().is_some();
        let attributes = self
            .written
            .iter()
            .filter(|attribute| !(is(attribute, "resilient") || plain && is(attribute, "handler")));
        let (vis, sig, body) = (&self.vis, &self.sig, &self.body);
        quote!(#(#attributes)* #vis #sig #body)
    }
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        const FREE_FN: &str = "`#[resilient]` guards a poem handler: a free fn with `#[handler]` under the attribute";
        let written = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let start = input.span();
        let sig = input.parse().map_err(|_| Error::new(start, FREE_FN))?;
        if !input.peek(Brace) {
            return Err(Error::new(start, format!("{FREE_FN}; this fn has no body")));
        }
        let TokenTree::Group(body) = input.parse()? else {
            return Err(input.error("expected the fn's body"));
        };
        Ok(Self {
            attributes: Attributes::sort(&written),
            vis,
            sig,
            body,
            written,
        })
    }
}

impl Attributes {
    fn sort(written: &[Attribute]) -> Self {
        let mut sorted = Self::default();
        for attribute in written {
            for (attribute, meta) in conditional_parts(attribute) {
                sorted.home(&meta).push(attribute);
            }
        }
        sorted
    }

    fn home(&mut self, meta: &Meta) -> &mut Vec<Attribute> {
        match (last_segment(meta).as_str(), meta.path().get_ident().is_some()) {
            // Of these two, any path will do: `#[poem::handler]`.
            ("handler", _) => &mut self.handler,
            ("resilient", _) => &mut self.resilient,
            ("cfg", true) => &mut self.cfg,
            ("doc", true) => &mut self.docs,
            ("deprecated", true) => &mut self.deprecated,
            ("allow" | "warn" | "deny" | "forbid", true) => &mut self.lints,
            ("expect", true) => &mut self.expectations,
            _ => &mut self.inner,
        }
    }
}

fn is(attribute: &Attribute, name: &str) -> bool {
    last_segment(&attribute.meta) == name
}

fn last_segment(meta: &Meta) -> String {
    let last = meta.path().segments.last();
    last.map(|segment| segment.ident.to_string()).unwrap_or_default()
}

/// An attribute with the meta that decides where it goes. `#[cfg_attr(p, a, b)]` becomes two: `a` and `b` may part ways.
fn conditional_parts(attribute: &Attribute) -> Vec<(Attribute, Meta)> {
    let whole = || vec![(attribute.clone(), attribute.meta.clone())];
    if !attribute.path().is_ident("cfg_attr") {
        return whole();
    }
    let Ok(list) = attribute.meta.require_list() else {
        return whole();
    };
    let Ok(metas) = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone()) else {
        return whole();
    };
    let mut metas = metas.into_iter();
    let predicate = metas.next().map(Meta::into_token_stream);
    metas
        .map(|meta| (parse_quote!(#[cfg_attr(#predicate, #meta)]), meta))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(attributes: &[Attribute]) -> Vec<String> {
        attributes
            .iter()
            .map(|attribute| attribute.meta.to_token_stream().to_string().replace(' ', ""))
            .collect()
    }

    #[test]
    fn each_attribute_goes_to_the_item_that_it_is_about() {
        let handler: Handler = parse_quote! {
            #[doc = "Docs."]
            #[allow(dead_code)]
            #[cfg(unix)]
            #[tracing::instrument]
            #[expect(unused)]
            #[deprecated]
            #[poem::handler(internal)]
            #[inline]
            pub(crate) async fn checkout() {}
        };
        let sorted = &handler.attributes;
        assert_eq!(texts(&sorted.docs), ["doc=\"Docs.\""]);
        assert_eq!(texts(&sorted.lints), ["allow(dead_code)"]);
        assert_eq!(texts(&sorted.cfg), ["cfg(unix)"]);
        assert_eq!(texts(&sorted.inner), ["tracing::instrument", "inline"]);
        assert_eq!(texts(&sorted.expectations), ["expect(unused)"]);
        assert_eq!(texts(&sorted.deprecated), ["deprecated"]);
        assert_eq!(texts(&sorted.handler), ["poem::handler(internal)"]);
        assert_eq!(handler.written.len(), 8);
    }

    #[test]
    fn conditional_attributes_part_ways() {
        let handler: Handler = parse_quote! {
            #[cfg_attr(feature = "docs", doc(hidden), inline, allow(unused))]
            fn checkout() {}
        };
        let sorted = &handler.attributes;
        assert_eq!(texts(&sorted.docs), ["cfg_attr(feature=\"docs\",doc(hidden))"]);
        assert_eq!(texts(&sorted.inner), ["cfg_attr(feature=\"docs\",inline)"]);
        assert_eq!(texts(&sorted.lints), ["cfg_attr(feature=\"docs\",allow(unused))"]);
    }

    #[test]
    fn only_free_fns_with_a_body_are_handlers() {
        for item in [
            "struct S;",
            "fn f();",
            "fn f() -> u8",
            "static S: u8 = 0;",
            "mod m {}",
            "",
        ] {
            assert!(syn::parse_str::<Handler>(item).is_err(), "{item}");
        }
    }
}
