//! Attempts to log in: what counts, for whom, and what a lock answers.

mod attempts;
mod bodies;
mod flood;
mod hang_up;
mod origins;
mod outage;
mod readers;
mod under_way;

use std::time::Duration;

use poem::{
    Endpoint, Request, Response, handler,
    http::{Method, StatusCode},
};
use resilience::{
    LoginOutcome,
    client::ClientKey,
    resilient,
    store::Settle,
    testing::{Answer, ScriptedStore},
};

use super::{app, ask, over};

/// The usual pair. The handler reads the body as it came, and answers with the status that the password names.
#[resilient(
    lockout(3, "15m", key = account("json:/username")),
    lockout(8, "15m", key = ip)
)]
#[handler]
async fn login(body: String) -> poem::Result<Response> {
    answer(&body)
}

/// `{"username":…,"password":"<status>[ <outcome>]"}`; a status of 5xx is an error of the handler's.
fn answer(body: &str) -> poem::Result<Response> {
    let body: serde_json::Value = serde_json::from_str(body).expect("the body is the client's own");
    let password = body["password"].as_str().expect("a text");
    let (status, outcome) = password.split_once(' ').unwrap_or((password, ""));
    let status = StatusCode::from_bytes(status.as_bytes()).expect("a status");
    let outcome = match outcome {
        "succeeded" => Some(LoginOutcome::Succeeded),
        "failed" => Some(LoginOutcome::Failed),
        "none" => Some(LoginOutcome::NotAnAttempt),
        _ => None,
    };
    match outcome {
        Some(outcome) if status.is_server_error() => Err(outcome.on_error(poem::Error::from_status(status))),
        Some(outcome) => Ok(outcome.on(status)),
        None if status.is_server_error() => Err(poem::Error::from_status(status)),
        None => Ok(status.into()),
    }
}

/// A login from one address.
fn attempt(username: &str, password: &str) -> Request {
    post(&serde_json::json!({ "username": username, "password": password }).to_string())
}

fn post(body: &str) -> Request {
    Request::builder().method(Method::POST).body(body.to_owned())
}

async fn status(app: &impl Endpoint, username: &str, password: &str) -> u16 {
    ask(app, attempt(username, password)).await.status.as_u16()
}

/// The tally of an account in the store.
fn account(name: &str) -> String {
    ClientKey::account(name).expect("an account").as_str().to_owned()
}

/// The tally of all requests without an address.
fn address() -> String {
    ClientKey::unknown().as_str().to_owned()
}
