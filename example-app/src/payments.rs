//! The payments service that quotes come from: how it is called, and a stub of it to play with.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use poem::{
    Endpoint, EndpointExt, Route, Server, get, handler,
    http::StatusCode,
    listener::{Acceptor, Listener, TcpListener},
    web::{Data, Json},
};
use resilience::{
    Error, outbound,
    pipeline::{
        Classify, Verdict,
        http::{Http, HttpError, RequestExt, ResponseExt},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The dependency's name, as the attribute below has it.
pub(crate) const NAME: &str = "payments";

/// The service at some address.
#[derive(Clone, Debug)]
pub(crate) struct Payments {
    client: reqwest::Client,
    url: String,
}

/// Why there is no quote.
#[derive(Debug)]
pub(crate) enum NoQuote {
    /// What came of the call.
    Http(HttpError),
    /// There was none, or not in time.
    Refused(Error),
}

impl Payments {
    pub(crate) fn at(url: String) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let client = reqwest::Client::new();
        Self { client, url }
    }

    /// Half a second for all of it, two more attempts if need be, and no call at all while the service is known to be down.
    /// The service is told how long its answer is waited for.
    #[outbound(
        breaker = "payments",
        timeout = "500ms",
        retry(2, backoff = "20ms"),
        classify = judged
    )]
    pub(crate) async fn quote(&self) -> Result<Value, NoQuote> {
        let text = self.fetch().await?;
        serde_json::from_str(&text).map_err(|_| {
            let message = "The payments service answered with no JSON.";
            NoQuote::Refused(Error::new(StatusCode::BAD_GATEWAY, "bad_gateway", message))
        })
    }

    async fn fetch(&self) -> Result<String, HttpError> {
        let request = self.client.get(format!("{}/quote", self.url)).with_deadline();
        Ok(request.send().await?.checked()?.text().await?)
    }
}

/// Quotes may be asked for twice. What is no answer of the service says nothing about it.
fn judged(answer: Result<&Value, &NoQuote>) -> Verdict {
    match answer {
        Ok(_) => Verdict::success(),
        Err(NoQuote::Http(error)) => Classify::<Value, _>::classify(&Http::idempotent(), Err(error)),
        Err(NoQuote::Refused(_)) => Verdict::neutral(),
    }
}

impl From<HttpError> for NoQuote {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<Error> for NoQuote {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<NoQuote> for Error {
    fn from(no_quote: NoQuote) -> Self {
        match no_quote {
            NoQuote::Http(error) => error.into(),
            NoQuote::Refused(error) => error,
        }
    }
}

/// What `POST /demo/payments` turns and `GET /demo/payments` shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knobs(Arc<Stub>);

#[derive(Debug, Default)]
struct Stub {
    latency_ms: AtomicU64,
    fail: AtomicBool,
    calls: AtomicU64,
    in_flight: AtomicU64,
    most_at_once: AtomicU64,
}

/// A call that the stub is about to answer, or whose caller has gone.
struct InFlight<'a>(&'a Stub);

impl<'a> InFlight<'a> {
    fn count(stub: &'a Stub) -> Self {
        stub.calls.fetch_add(1, Relaxed);
        let at_once = stub.in_flight.fetch_add(1, Relaxed) + 1;
        stub.most_at_once.fetch_max(at_once, Relaxed);
        Self(stub)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[derive(Deserialize)]
struct Turn {
    #[serde(default)]
    latency_ms: u64,
    #[serde(default)]
    fail: bool,
}

/// Serves a stub of the service on a free port, and says where.
pub(crate) async fn stub(knobs: Knobs) -> Result<SocketAddr, String> {
    let problem = |error| format!("cannot serve a stub of the payments service: {error}");
    let acceptor = TcpListener::bind("127.0.0.1:0")
        .into_acceptor()
        .await
        .map_err(problem)?;
    let addresses = acceptor.local_addr();
    let address = addresses.first().and_then(|address| address.as_socket_addr().copied());
    let app = Route::new().at("/quote", answers(knobs));
    tokio::spawn(Server::new_with_acceptor(acceptor).run(app));
    address.ok_or_else(|| "the stub's socket has no address".to_owned())
}

/// The stub's one route: also for other instances, whose `PAYMENTS_URL` is this one's `/demo`.
pub(crate) fn answers(knobs: Knobs) -> impl Endpoint {
    get(stub_quote.data(knobs))
}

/// What the stub answers, as its knobs stand.
#[handler]
async fn stub_quote(Data(knobs): Data<&Knobs>) -> poem::Result<Json<Value>> {
    let stub = &*knobs.0;
    let _in_flight = InFlight::count(stub);
    tokio::time::sleep(Duration::from_millis(stub.latency_ms.load(Relaxed))).await;
    if stub.fail.load(Relaxed) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR.into());
    }
    Ok(Json(json!({ "amount": 4200, "currency": "EUR" })))
}

/// `POST /demo/payments` turns the stub's knobs, `GET` shows them and what calls there were.
pub(crate) fn demo(knobs: Knobs) -> impl Endpoint {
    get(show.data(knobs.clone())).post(turn.data(knobs))
}

#[handler]
async fn show(Data(knobs): Data<&Knobs>) -> Json<Value> {
    let stub = &*knobs.0;
    Json(json!({
        "calls": stub.calls.load(Relaxed),
        "most_at_once": stub.most_at_once.load(Relaxed),
        "latency_ms": stub.latency_ms.load(Relaxed),
        "fail": stub.fail.load(Relaxed),
    }))
}

#[handler]
async fn turn(Data(knobs): Data<&Knobs>, Json(Turn { latency_ms, fail }): Json<Turn>) -> Json<Value> {
    let stub = &*knobs.0;
    stub.latency_ms.store(latency_ms, Relaxed);
    stub.fail.store(fail, Relaxed);
    // Calls under way stay in it.
    stub.most_at_once.store(stub.in_flight.load(Relaxed), Relaxed);
    Json(json!({ "latency_ms": latency_ms, "fail": fail }))
}
