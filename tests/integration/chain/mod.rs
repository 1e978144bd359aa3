//! The guard chain as an app sees it: requests in, answers out, over a store that the test drives. Time is paused, so
//! that every wait is exact.

mod attribute;
mod auth;
mod authenticator;
mod blocked;
mod breakers;
mod budgets;
mod cancellation;
mod concurrency;
mod deadline;
mod flag;
mod guards;
mod install;
mod lockout;
mod metrics;
mod observe;
pub(crate) mod outage_log;
mod places;
mod proxies;
mod rate_limit;
mod recovery;
mod responses;
mod several_quotas;
mod unreadable;

use std::time::Duration;

use poem::{
    Endpoint, EndpointExt, Request, Response,
    http::{HeaderMap, StatusCode},
};
use resilience::{Builder, Resilience, breaker::State, store::Taken, testing::ScriptedStore};
use tokio::time::Instant;

/// A runtime's settings over this store, to be changed further.
fn over(store: &ScriptedStore) -> Builder {
    Resilience::builder().store(store.clone())
}

/// A guarded handler behind `.with(…)` of a runtime with these settings.
fn app(handler: impl Endpoint, settings: Builder) -> impl Endpoint<Output = Response> {
    handler.with(settings.build().expect("valid settings"))
}

/// Whether every breaker in front of the store is closed.
fn is_closed(resilience: &Resilience) -> bool {
    let breakers = resilience.breakers();
    breakers.iter().all(|breaker| breaker.state() == State::Closed)
}

/// A request with these headers.
fn request(headers: &[(&str, &str)]) -> Request {
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.finish()
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answered {
    /// The value of a header; several values are joined as HTTP does.
    fn header(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().expect("ASCII"))
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The `error` of a refusal's body.
    fn code(&self) -> String {
        self.json()["error"].as_str().expect("a code").to_owned()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    /// Status and code of a refusal; the body of anything else stands for its code.
    fn summary(&self) -> (u16, String) {
        let refused = self.status.is_client_error() || self.status.is_server_error();
        (
            self.status.as_u16(),
            if refused { self.code() } else { self.body.clone() },
        )
    }

    /// All headers but the content's type, as sorted `name: value` lines.
    fn lines(&self) -> Vec<String> {
        let lines = self.headers.iter().filter(|(name, _)| *name != "content-type");
        let mut lines: Vec<_> = lines
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")))
            .collect();
        lines.sort();
        lines
    }
}

/// Sends a request, and takes the answer as the client would get it.
async fn ask(app: &impl Endpoint, request: Request) -> Answered {
    let response = app.get_response(request).await;
    Answered {
        status: response.status(),
        headers: response.headers().clone(),
        body: response.into_body().into_string().await.expect("a text"),
    }
}

/// [`ask`], and how long it took.
async fn timed(app: &impl Endpoint, request: Request) -> (Answered, Duration) {
    let asked = Instant::now();
    let answered = ask(app, request).await;
    (answered, asked.elapsed())
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A quota with room.
const fn room(remaining: u32, reset: Duration) -> Taken {
    Taken {
        allowed: true,
        remaining,
        retry_after: Duration::ZERO,
        reset,
    }
}

/// A quota that is used up.
const fn full(retry_after: Duration) -> Taken {
    Taken {
        allowed: false,
        remaining: 0,
        retry_after,
        reset: retry_after,
    }
}
