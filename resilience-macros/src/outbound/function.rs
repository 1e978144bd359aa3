//! The fn under the attribute, its body unparsed.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, Error, FnArg, Pat, PatIdent, Receiver, Result, ReturnType, Signature, Type, Visibility,
    parse::{Parse, ParseStream},
    token::Brace,
};

/// A fn or a method with its attributes, as they were written.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
}

/// A parameter on its way from the fn into an attempt.
pub(crate) struct Binding {
    /// What the emitted signature calls it.
    pub(crate) name: Ident,
    /// What the body takes it apart with.
    pub(crate) pattern: Pat,
}

impl Function {
    /// The attribute of this name, by any path.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| is(attribute, name))
    }

    /// `self`, if this is a method.
    pub(crate) fn receiver(&self) -> Option<&Receiver> {
        self.sig.inputs.iter().find_map(|input| match input {
            FnArg::Receiver(receiver) => Some(receiver),
            FnArg::Typed(_) => None,
        })
    }

    /// The types of the parameters other than `self`.
    pub(crate) fn types(&self) -> impl Iterator<Item = &Type> {
        self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(&*parameter.ty),
            FnArg::Receiver(_) => None,
        })
    }

    /// What the fn returns, if it says so.
    pub(crate) fn output(&self) -> Option<&Type> {
        match &self.sig.output {
            ReturnType::Type(_, ty) => Some(ty),
            ReturnType::Default => None,
        }
    }

    /// The signature to emit, with a plain name for each parameter, and how each reaches the body. A parameter called `_`
    /// has no name in either, and lives as long as the call.
    pub(crate) fn signature(&self) -> (Signature, Vec<Binding>) {
        let mut sig = self.sig.clone();
        let mut bindings = Vec::new();
        for (index, input) in sig.inputs.iter_mut().enumerate() {
            let FnArg::Typed(parameter) = input else {
                continue;
            };
            let name = match &*parameter.pat {
                Pat::Wild(_) => continue,
                Pat::Ident(PatIdent {
                    by_ref: None,
                    subpat: None,
                    ident,
                    ..
                }) => ident.clone(),
                _ => format_ident!("__resilient_{index}"),
            };
            let plain = Pat::Ident(PatIdent {
                attrs: Vec::new(),
                by_ref: None,
                mutability: None,
                ident: name.clone(),
                subpat: None,
            });
            let pattern = std::mem::replace(&mut *parameter.pat, plain);
            bindings.push(Binding { name, pattern });
        }
        (sig, bindings)
    }

    /// The item without this crate's attribute, emitted beside errors so that whoever calls it still compiles.
    pub(crate) fn plain(&self) -> TokenStream {
        let attributes = self.attributes.iter().filter(|attribute| !is(attribute, "outbound"));
        let (vis, sig, body) = (&self.vis, &self.sig, &self.body);
        quote!(#(#attributes)* #vis #sig #body)
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        const A_FN: &str = "`#[outbound]` stands above an `async fn` or method that calls a dependency";
        let attributes = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let start = input.span();
        let sig = input.parse().map_err(|_| Error::new(start, A_FN))?;
        if !input.peek(Brace) {
            return Err(Error::new(
                start,
                format!("{A_FN}; this one has no body: put it above the implementation"),
            ));
        }
        let TokenTree::Group(body) = input.parse()? else {
            return Err(input.error("expected the fn's body"));
        };
        Ok(Self {
            attributes,
            vis,
            sig,
            body,
        })
    }
}

/// Whether the last part of the attribute's path is this name.
fn is(attribute: &Attribute, name: &str) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == name)
}

/// How a type was written, without spaces.
pub(crate) fn text(ty: &impl ToTokens) -> String {
    ty.to_token_stream().to_string().replace(' ', "")
}
