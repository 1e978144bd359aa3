//! Whoever a handler reads is whoever was counted, by poem's own extractors.

use poem::web::{Form, Json};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Credentials {
    username: String,
}

/// A handler that takes what it can get, and says whom it has read.
#[resilient(lockout(1_000, "15m", key = account("json:/username")))]
#[handler]
async fn json_login(json: Option<Json<Credentials>>, form: Option<Form<Credentials>>) -> String {
    read(json, form)
}

#[resilient(lockout(1_000, "15m", key = account("form:username")))]
#[handler]
async fn form_login(json: Option<Json<Credentials>>, form: Option<Form<Credentials>>) -> String {
    read(json, form)
}

fn read(json: Option<Json<Credentials>>, form: Option<Form<Credentials>>) -> String {
    let json = json.map(|Json(credentials)| credentials.username);
    json.or(form.map(|Form(credentials)| credentials.username))
        .unwrap_or_default()
}

/// Who was counted, as the store was told, and whom the handler has read; `None` if it did not run.
async fn both(handler: impl Endpoint, request: Request) -> Option<(String, String)> {
    let store = ScriptedStore::new();
    let answered = ask(&app(handler, over(&store)), request).await;
    if answered.status != 200 {
        return None;
    }
    // A success clears the tally: the store is told whose.
    let (subject, _) = store.settled().pop().expect("a success is settled");
    Some((subject, answered.body))
}

fn requests() -> impl Strategy<Value = (Method, Option<&'static str>, String, String)> {
    let method = prop_oneof![Just(Method::POST), Just(Method::GET), Just(Method::PUT)];
    let types = prop::option::of(prop_oneof![
        Just("application/json"),
        Just("application/x-www-form-urlencoded"),
        Just("application/vnd.login+json; charset=utf-8"),
        Just("text/plain"),
    ]);
    let fields = "(username=(ada|eve)|%75sername=eve|password=x|x=\\{|&){0,6}";
    let json = prop_oneof![
        Just(r#"{"username":"ada"}"#),
        Just(r#"{"username":"ada","username":"eve"}"#),
        Just(r#"{"username":"ada","a":"&username=eve&b="}"#),
        Just(r#"{"\u0075sername":"eve"}"#),
        Just(r#"{"username":["eve"]}"#),
    ];
    let body = prop_oneof![json.prop_map(str::to_owned), fields.prop_map(|text| text)];
    (method, types, fields.prop_map(|text| text), body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_account_that_is_counted_is_the_one_that_the_handler_reads(
        (method, content_type, query, body) in requests(),
        is_json in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let found = runtime.block_on(async {
            let mut request = Request::builder().method(method).uri_str(format!("/login?{query}").replace(['{', '"'], ""));
            if let Some(content_type) = content_type {
                request = request.content_type(content_type);
            }
            let request = request.body(body);
            if is_json { both(json_login, request).await } else { both(form_login, request).await }
        });
        if let Some((counted, read)) = found
            && !read.is_empty()
        {
            prop_assert_eq!(counted, account(&read));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_of_a_get_stands_in_the_query() {
    let request = Request::builder()
        .method(Method::GET)
        .uri_str("/login?username=ada&password=guess")
        .body("username=eve");
    assert_eq!(both(form_login, request).await, Some((account("ada"), "ada".into())));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_type_names_nobody() {
    let polyglot = r#"{"username":"eve","a":"&username=ada&b="}"#;
    let request = |content_type: &str| {
        Request::builder()
            .method(Method::POST)
            .content_type(content_type)
            .body(polyglot)
    };
    assert_eq!(
        both(json_login, request("application/x-www-form-urlencoded")).await,
        None
    );
    assert_eq!(both(form_login, request("application/json")).await, None);
    let read = both(json_login, request("application/json")).await;
    assert_eq!(read, Some((account("eve"), "eve".into())));
}
