use super::*;

const HANDLER: &str = "/// Docs.\n#[handler] pub async fn checkout(request: &Request) -> String { String::new() }";

/// A valid attribute, token by token.
const ATTRIBUTE: &str = r#"auth ( "fail_closed" , header = "x-api-key" , deadline = "150ms" ) ,
    flag ( "checkout" , default = false , blocks_when = "on" , stale = "30s" ) ,
    rate_limit ( 30 , "1m" , key = header ( "x-tenant" ) , algorithm = "fixed_window" , name = "api" ) ,
    rate_limit ( 1_000 , 86400 , key = user , algorithm = "token_bucket" , burst = 100 , cost = 5 ) ,
    lockout ( 5 , "1m, 15m" , key = account ( "json:/username" ) , name = "login" , mode = "enforce" ) ,
    rate_limit ( 9 , 1 , key = a :: b , on_outage = "fail_local" , local_share = "25%" , mode = "observe" ) ,
    concurrency ( 64 , queue = 16 , queue_timeout = "100ms" , adaptive = true ) , priority = "background" ,
    deadline = "2s" , breaker = "shared" , guard ( path :: to :: < A , B > :: GUARD ) ,"#;

/// Expands, and checks that the result is either guarded or in error, never both and never neither.
fn expands(attribute: &str, item: &str) -> bool {
    let (Ok(attribute), Ok(item)) = (attribute.parse(), item.parse()) else {
        return false;
    };
    let code = guarded(attribute, item).to_string();
    let (is_guarded, is_refused) = (code.contains("__RESILIENT_POLICY"), code.contains("compile_error"));
    assert_ne!(is_guarded, is_refused, "{code}");
    is_guarded
}

#[test]
fn a_valid_attribute_expands_to_valid_code() {
    assert!(expands(ATTRIBUTE, HANDLER));
    let code = guarded(ATTRIBUTE.parse().unwrap(), HANDLER.parse().unwrap());
    syn::parse2::<syn::File>(code).unwrap();
}

#[test]
fn no_slip_of_the_keyboard_panics() {
    slips(
        ATTRIBUTE,
        &["auth", "auth =", "header ( )", "key = header"],
        |attribute| {
            expands(attribute, HANDLER);
        },
    );
}

/// An attribute, once for each strange thing in the place of each of its tokens, and before it: strange to any attribute, or
/// to this one.
pub(crate) fn slips(attribute: &str, own: &[&str], mut each: impl FnMut(&str)) {
    let tokens: Vec<_> = attribute.split_whitespace().collect();
    for at in 0..tokens.len() {
        for strange in STRANGE.iter().chain(own) {
            for kept in [at, at + 1] {
                let (before, after) = (tokens[..at].join(" "), tokens[kept..].join(" "));
                each(&format!("{before} {strange} {after}"));
            }
        }
    }
}

const STRANGE: [&str; 46] = [
    "",
    ",",
    ",,",
    "=",
    "==",
    "=>",
    "(",
    ")",
    "()",
    "{}",
    "[ ]",
    "(,)",
    "-",
    "->",
    "::",
    "<",
    ">",
    "..=",
    "#",
    "!",
    "_",
    "'a",
    "'a'",
    "0",
    "-1",
    "0u8",
    "1e400",
    "1.0",
    "0xffff_ffff_ffff_ffff",
    "\"\"",
    "\"\\u{0}\"",
    "b\"1s\"",
    "c\"1s\"",
    "r#\"1s\"#",
    "\"9999999999999999999999s\"",
    "\"٣s\"",
    "r#type",
    "self",
    "crate",
    "async",
    "größe",
    "if true { 1 } else { 2 }",
    "|| 0",
    "a.b",
    "a!()",
    "$",
];

#[test]
fn no_item_panics() {
    for item in [
        "",
        ";",
        "fn",
        "fn f",
        "fn f()",
        "fn f();",
        "fn f() {}",
        "struct S;",
        "impl S { fn f() {} }",
        "mod m { fn f() {} }",
        "let x = 1;",
        "|x| x",
        "#[handler]",
        "#[handler] fn f() {} fn g() {}",
        "#[handler] fn f(self) {}",
        "#[handler] fn f(&'a mut self, x: T) {}",
        "#[handler] fn f<'a, const N: usize, T: 'a>(x: &'a [T; N]) {}",
        "#[handler] fn f(x: impl Sized, ..., ) {}",
        "#[handler] unsafe extern \"C\" fn f(x: T, ...) {}",
        "#[handler] const fn r#async() {}",
        "#[handler] #[resilient] #[resilience::resilient()] fn f() {}",
        "#[cfg_attr] #[cfg_attr()] #[cfg_attr(x)] #[cfg_attr(x, y = 1, handler)] #[cfg_attr(,,)] fn f() {}",
        "#[doc] #[deprecated = \"x\"] #[unsafe(no_mangle)] #[a::b(c)] #[handler] fn f() {}",
    ] {
        expands("rate_limit(30, 60)", item);
        expands("rate_limit(0, 60), auth = \"fail_open\"", item);
        expands("", item);
    }
}
