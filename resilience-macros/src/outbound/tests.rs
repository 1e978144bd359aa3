use quote::quote;

use super::*;

const FUNCTION: &str = "/// Docs.\n#[inline] pub async fn quote(&self, order: &Order) -> Result<u32, Error> { Ok(1) }";

/// A valid attribute, token by token.
const ATTRIBUTE: &str = r#"breaker = "payments" , timeout = "2s" , attempt_timeout = "200ms" ,
    retry ( 3 , backoff = "50ms" , max_backoff = "1s" , budget = "payments" ) ,
    bulkhead ( 16 , queue = 8 , queue_timeout = "50ms" , name = "payments" ) ,
    fallback = path :: to :: < A > :: cached , classify = Self :: judge ,"#;

/// Expands, and checks that the result is either wrapped or in error, never both and never neither.
fn expands(attribute: &str, item: &str) -> bool {
    let (Ok(attribute), Ok(item)) = (attribute.parse(), item.parse()) else {
        return false;
    };
    let code = outbound(attribute, item).to_string();
    let (is_wrapped, is_refused) = (code.contains("__RESILIENT_OUTBOUND"), code.contains("compile_error"));
    assert_ne!(is_wrapped, is_refused, "{code}");
    is_wrapped
}

fn mistakes(attribute: TokenStream) -> Vec<String> {
    let mut errors = Errors::default();
    let outbound = Outbound::parse(args::entries(attribute, &mut errors), &mut errors);
    check::options(&outbound, &mut errors);
    errors.messages()
}

#[test]
fn a_valid_attribute_expands_to_valid_code() {
    assert!(expands(ATTRIBUTE, FUNCTION));
    let code = outbound(ATTRIBUTE.parse().unwrap(), FUNCTION.parse().unwrap());
    syn::parse2::<syn::File>(code).unwrap();
}

#[test]
fn no_slip_of_the_keyboard_panics() {
    crate::tests::slips(
        ATTRIBUTE,
        &["retry", "retry =", "retry ( )", "breaker ( )", "|e| e"],
        |attribute| {
            expands(attribute, FUNCTION);
        },
    );
}

#[test]
fn no_item_panics() {
    for item in [
        "",
        ";",
        "fn",
        "async fn f();",
        "fn f() {}",
        "async fn f() {}",
        "struct S;",
        "impl S { async fn f() {} }",
        "|x| x",
        "#[outbound] #[outbound()] async fn f() -> Result<(), E> {}",
        "#[handler] #[resilient] async fn f() -> Result<(), E> {}",
        "async fn f(self) -> Result<(), E> {}",
        "async fn f(self: Pin<&mut Self>, (a, _): (u8, u8), _: u8, ref c: u8, d @ 1..: u8) -> io::Result<impl X> {}",
        "async unsafe fn r#type<'a, const N: usize, T: 'a>(mut x: &'a [T; N]) -> Result<&'a T, E> where T: Copy {}",
        "default async fn f(x: impl Sized, ..., ) -> Result<(), E> {}",
        "async fn f() -> ! {}",
        "async fn f() -> m!() {}",
    ] {
        expands("retry(3)", item);
        expands("timeout = \"1s\"", item);
        expands("retry(0), breaker = \"store\"", item);
        expands("", item);
    }
}

#[test]
fn attempts_and_waits_have_to_fit_into_the_call() {
    let fits = [
        quote!(timeout = "500ms", retry(3)),
        quote!(timeout = "800ms", retry(3), attempt_timeout = "200ms"),
        quote!(retry(20), attempt_timeout = "1h"),
        // The waits are 25, 50 and 100 ms on average.
        quote!(timeout = "176ms", retry(3)),
        quote!(timeout = "1s", retry(20, backoff = "1ms", max_backoff = "90ms")),
        quote!(timeout = "51ms", bulkhead(1, queue = 1, queue_timeout = "50ms")),
    ];
    for attribute in fits {
        assert!(mistakes(attribute.clone()).is_empty(), "{attribute}");
    }
    let exceeds = [
        quote!(timeout = "799ms", retry(3), attempt_timeout = "200ms"),
        quote!(timeout = "100ms", retry(1), attempt_timeout = "101ms"),
        quote!(timeout = "175ms", retry(3)),
        quote!(timeout = "1s", retry(20)),
        quote!(timeout = "1h", retry(1, backoff = "3s")),
        quote!(retry(1, max_backoff = "49ms")),
        quote!(timeout = "50ms", bulkhead(1, queue = 1, queue_timeout = "50ms")),
    ];
    for attribute in exceeds {
        assert_eq!(mistakes(attribute.clone()).len(), 1, "{attribute}");
    }
}

#[test]
fn a_mistake_is_not_followed_by_its_consequences() {
    for attribute in [
        quote!(timeout = 500, retry(3), attempt_timeout = "200ms"),
        quote!(timeout = "500ms", retry("3"), attempt_timeout = "200ms"),
        quote!(timeout = "100ms", retry(3, backoff = 10)),
        quote!(retry(), attempt_timeout = "200ms"),
        quote!(retry(3, backof = "1h")),
        quote!(bulkhead(1, queu = 1, queue_timeout = "50ms")),
        quote!(breaker = "", classify = a::b),
    ] {
        let mistakes = mistakes(attribute.clone());
        assert_eq!(mistakes.len(), 1, "{attribute}: {mistakes:?}");
    }
}
