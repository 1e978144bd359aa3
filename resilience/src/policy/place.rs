//! Where a handler is, from the type name of an item beside it.

/// The path of the module or fn that holds `marker`, the type name of an item in a `const _`.
///
/// `app::routes::outer::{{closure}}::_::Marker` is in `app::routes::outer`: an async fn adds a closure, a `const _` an
/// underscore. At the level of a module that is `module` itself.
pub(super) fn of(marker: &'static str, module: &'static str) -> &'static str {
    let mut place = marker.rsplit_once("::").map_or(module, |(place, _)| place);
    while let Some(outer) = place
        .strip_suffix("::_")
        .or_else(|| place.strip_suffix("::{{closure}}"))
    {
        place = outer;
    }
    // The two spell raw identifiers differently.
    if place == module.replace("r#", "") {
        module
    } else {
        place
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use super::*;

    #[test]
    fn a_place_is_the_module_or_the_fn() {
        for (marker, place) in [
            ("app::routes::_::Marker", "app::routes"),
            ("app::routes::outer::_::Marker", "app::routes::outer"),
            ("app::routes::outer::{{closure}}::_::Marker", "app::routes::outer"),
            (
                "app::routes::outer::{{closure}}::{{closure}}::_::_::Marker",
                "app::routes::outer",
            ),
            ("app::routes::one::two::_::Marker", "app::routes::one::two"),
            ("<app::App<T>>::routes::_::Marker", "<app::App<T>>::routes"),
            ("Marker", "app::routes"),
        ] {
            assert_eq!(of(marker, "app::routes"), place, "{marker}");
        }
        assert_eq!(of("app::async::_::Marker", "app::r#async"), "app::r#async");
    }

    #[test]
    fn the_compiler_names_places_so() {
        struct Marker;
        fn nested<T>(_: T) -> &'static str {
            struct Marker;
            of(type_name::<Marker>(), module_path!())
        }
        let here = concat!(module_path!(), "::the_compiler_names_places_so");
        assert_eq!(of(type_name::<Marker>(), module_path!()), here);
        assert_eq!(nested(1_u8), format!("{here}::nested"));
        assert_eq!(nested(1_u8), nested(1_u16));
        assert_eq!(of(type_name::<Outside>(), module_path!()), module_path!());
    }

    struct Outside;
}
