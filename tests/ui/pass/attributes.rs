//! Visibility, docs, `cfg`, lints and deprecation carry over, and the expansion adds no warning.

#![deny(warnings, missing_docs, unreachable_pub, unused_qualifications)]

/// Handlers that others may see.
pub mod api {
    use poem::{Endpoint, handler};
    use resilience::resilient;

    /// Documented, as the crate demands.
    ///
    /// In several paragraphs.
    #[resilient(rate_limit(30, 60))]
    #[handler]
    pub async fn documented() {}

    #[doc = "Above and"]
    #[resilient(rate_limit(30, 60))]
    #[doc = "below."]
    #[handler]
    #[doc(alias = "elsewhere")]
    pub async fn documented_around() {}

    #[resilient(rate_limit(30, 60))]
    #[handler]
    pub(crate) async fn crate_wide() {}

    #[resilient(rate_limit(30, 60))]
    #[handler]
    pub(super) async fn one_up() {}

    #[resilient(rate_limit(30, 60))]
    #[handler]
    pub(in crate::api) async fn here() {}

    /// Gone soon.
    #[resilient(rate_limit(30, 60))]
    #[deprecated(note = "ask elsewhere")]
    #[handler]
    pub async fn old() {}

    /// Gone soon as well.
    #[resilient(rate_limit(30, 60))]
    #[cfg_attr(all(), deprecated(since = "1.0.0"), doc(hidden), allow(unused_variables))]
    #[handler]
    pub async fn old_generic<T: for<'a> poem::FromRequest<'a> + Send + Sync + 'static>(value: T) {}

    #[resilient(rate_limit(30, 60))]
    #[cfg(any())]
    #[handler]
    pub async fn absent(_: DoesNotExist) {}

    #[cfg(any())]
    #[resilient(rate_limit(30, 60))]
    #[handler]
    pub async fn absent_above(_: DoesNotExist) {}

    #[resilient(rate_limit(30, 60))]
    #[handler]
    #[allow(dead_code)]
    async fn never_routed() {}

    #[resilient(rate_limit(30, 60))]
    #[allow(unused_variables)]
    #[handler]
    #[must_use]
    #[inline(never)]
    pub(crate) async fn allowed(unused: String) -> String {
        let unused_too = ();
        String::new()
    }

    #[resilient(rate_limit(30, 60))]
    #[handler]
    #[expect(unused_variables, reason = "met once, although the fn stands for several items")]
    pub(crate) async fn expected(unused: String) {}

    pub(crate) fn inside_a_fn() -> impl Endpoint {
        const ANSWER: &str = "42";

        #[resilient(rate_limit(30, 60))]
        #[handler]
        async fn local() -> &'static str {
            ANSWER
        }
        local
    }

    pub(crate) fn private() -> impl Endpoint {
        here
    }
}

mod outer {
    pub(crate) struct Known;

    pub(crate) mod inner {
        use poem::handler;
        use resilience::resilient;

        const LOCAL: &str = "local";

        #[resilient(rate_limit(30, 60), deadline = "1s")]
        #[handler]
        #[allow(unused_qualifications)]
        pub(crate) async fn paths() -> &'static str {
            let _ = super::Known;
            let _ = crate::outer::Known;
            self::LOCAL
        }
    }
}

macro_rules! guarded {
    ($(#[$attribute:meta])* $name:ident, $limit:expr, $window:literal, $ty:ty, $body:block) => {
        $(#[$attribute])*
        #[resilient::resilient(rate_limit($limit, $window))]
        #[poem::handler]
        pub async fn $name(_: $ty) -> String $body
    };
}

use resilience as resilient;

guarded!(
    /// From a macro.
    from_a_macro,
    30,
    "1m",
    String,
    { String::from("made") }
);

fn main() {
    #[allow(deprecated)]
    let old = (api::old, api::old_generic::<String>::default());
    let _ = poem::Route::new()
        .at("/documented", poem::get(api::documented))
        .at("/around", poem::get(api::documented_around))
        .at("/crate", poem::get(api::crate_wide))
        .at("/super", poem::get(api::one_up))
        .at("/private", poem::get(api::private()))
        .at("/old", poem::get(old.0).post(old.1))
        .at("/allowed", poem::get(api::allowed).post(api::expected))
        .at("/local", poem::get(api::inside_a_fn()))
        .at("/paths", poem::get(outer::inner::paths))
        .at("/macro", poem::get(from_a_macro));
}
