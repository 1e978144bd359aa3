//! An account has a place in the body.

use poem::handler;
use resilience::resilient;

#[resilient(lockout(5, "15m", key = account))]
#[handler]
async fn bare() {}

#[resilient(lockout(5, "15m", key = account()))]
#[handler]
async fn empty() {}

#[resilient(lockout(5, "15m", key = account(username)))]
#[handler]
async fn word() {}

#[resilient(lockout(5, "15m", key = account("username")))]
#[handler]
async fn no_source() {}

#[resilient(lockout(5, "15m", key = account("/user/name")))]
#[handler]
async fn pointer_alone() {}

#[resilient(lockout(5, "15m", key = account("json:")))]
#[handler]
async fn whole_document() {}

#[resilient(lockout(5, "15m", key = account("json:username")))]
#[handler]
async fn no_slash() {}

#[resilient(lockout(5, "15m", key = account("json:/user~name")))]
#[handler]
async fn bad_escape() {}

#[resilient(lockout(5, "15m", key = account("json:/user~")))]
#[handler]
async fn bad_escape_at_the_end() {}

#[resilient(lockout(5, "15m", key = account("form:")))]
#[handler]
async fn no_field() {}

#[resilient(lockout(5, "15m", key = account("xml:/login/username")))]
#[handler]
async fn xml() {}

fn main() {
    let _ = poem::Route::new()
        .at("/bare", poem::get(bare))
        .at("/empty", poem::get(empty))
        .at("/word", poem::get(word))
        .at("/no_source", poem::get(no_source))
        .at("/pointer_alone", poem::get(pointer_alone))
        .at("/whole_document", poem::get(whole_document))
        .at("/no_slash", poem::get(no_slash))
        .at("/bad_escape", poem::get(bad_escape))
        .at("/bad_escape_at_the_end", poem::get(bad_escape_at_the_end))
        .at("/no_field", poem::get(no_field))
        .at("/xml", poem::get(xml));
}
