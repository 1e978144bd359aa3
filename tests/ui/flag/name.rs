//! A flag has a name that is safe in keys and headers.

use poem::handler;
use resilience::resilient;

#[resilient(flag(default = false))]
#[handler]
async fn missing() {}

#[resilient(flag())]
#[handler]
async fn nothing() {}

#[resilient(flag("", default = false))]
#[handler]
async fn empty() {}

#[resilient(flag("check out", default = false))]
#[handler]
async fn space() {}

#[resilient(flag("{checkout}", default = false))]
#[handler]
async fn braces() {}

#[resilient(flag("check\"out", default = false))]
#[handler]
async fn quote() {}

#[resilient(flag("check\nout", default = false))]
#[handler]
async fn newline() {}

#[resilient(flag("geschäft", default = false))]
#[handler]
async fn umlaut() {}

#[resilient(flag("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", default = false))]
#[handler]
async fn too_long() {}

#[resilient(flag(checkout, default = false))]
#[handler]
async fn no_quotes() {}

#[resilient(flag(1, default = false))]
#[handler]
async fn number() {}

fn main() {
    let _ = poem::Route::new()
        .at("/missing", poem::get(missing))
        .at("/nothing", poem::get(nothing))
        .at("/empty", poem::get(empty))
        .at("/space", poem::get(space))
        .at("/braces", poem::get(braces))
        .at("/quote", poem::get(quote))
        .at("/newline", poem::get(newline))
        .at("/umlaut", poem::get(umlaut))
        .at("/too_long", poem::get(too_long))
        .at("/no_quotes", poem::get(no_quotes))
        .at("/number", poem::get(number));
}
