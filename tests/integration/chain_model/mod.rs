//! The chain asks its guards together. This holds it to the outcome of asking them one after another: random policies
//! over random stores go through both, and status, body and headers must be the same.

mod chance;
mod notes;
mod plan;
mod reference;

use std::{future::Future, time::Duration};

use poem::{Endpoint, EndpointExt, Request, Response, Result};
use proptest::{prelude::*, test_runner::TestCaseError};
use resilience::{
    Resilience,
    breaker::{BreakerConfig, State},
    policy::{Auth, Flag, Policy, RateLimit},
    testing::{Clock, ScriptedStore},
};
use tokio::time::{Instant, advance, sleep_until};

use self::{
    plan::{AUTH_DEADLINE, Case, FLAG_DEADLINE, HandlerPlan, Installed, LIMIT_DEADLINE, Operation},
    reference::Reference,
};

/// Requests of a case begin this far apart, however long each takes.
const SLOT: Duration = Duration::from_millis(300);

/// So many failures that no breaker opens by itself in a case.
const FAILURES_TO_OPEN: u32 = 50;

/// An answer, ready to be compared.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    status: u16,
    /// Sorted by name; values of one name stay in their order.
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Text(String),
    Json(serde_json::Value),
}

impl Seen {
    async fn of(response: Response) -> Self {
        let value = |value: &poem::http::HeaderValue| value.to_str().expect("ASCII").to_owned();
        let mut headers: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, text)| (name.to_string(), value(text)))
            .collect();
        headers.sort_by(|(a, _), (b, _)| a.cmp(b));
        let status = response.status().as_u16();
        let text = response.into_body().into_string().await.expect("a text");
        let body = match serde_json::from_str(&text) {
            Ok(json) => Body::Json(json),
            Err(_) => Body::Text(text),
        };
        Self { status, headers, body }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn asking_together_is_asking_one_after_another(case in chance::case()) {
        let chain = in_paused_time(through_the_chain(&case));
        let reference = in_paused_time(through_the_reference(&case));
        for (index, (chain, reference)) in chain.into_iter().zip(reference).enumerate() {
            if chain != reference {
                return Err(TestCaseError::fail(format!(
                    "request {index}: the chain says {chain:#?}, the reference {reference:#?}"
                )));
            }
        }
    }
}

fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// Lets each request begin at its time. The first is at the start of an hour, where all windows begin, so that counts of
/// the embedded store do not depend on when the test runs.
async fn at_its_slot(index: u32, start: &mut Option<Instant>) {
    const HOUR: u128 = 3_600_000;
    if start.is_none() {
        let into = Clock::system().now().as_millis() % HOUR;
        advance(Duration::from_millis(
            (HOUR - into).try_into().expect("less than an hour"),
        ))
        .await;
    }
    let start = *start.get_or_insert_with(Instant::now);
    sleep_until(start + SLOT * index).await;
}

async fn through_the_reference(case: &Case) -> Vec<Seen> {
    let mut reference = Reference::new(case);
    let mut start = None;
    let mut seen = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        at_its_slot(index.try_into().expect("few"), &mut start).await;
        seen.push(reference.answer(step).await);
    }
    seen
}

async fn through_the_chain(case: &Case) -> Vec<Seen> {
    let store = ScriptedStore::new();
    let resilience = Resilience::builder()
        .store(store.clone())
        .breakers(case.builders_breakers)
        .breaker(
            BreakerConfig::default()
                .with_failures_in_a_row(FAILURES_TO_OPEN)
                .with_open_for(Duration::from_secs(2 * 3_600)),
        )
        .auth_deadline(AUTH_DEADLINE)
        .flag_deadline(FLAG_DEADLINE)
        .rate_limit_deadline(LIMIT_DEADLINE)
        .remember_blocked(if case.remembers { 1_000 } else { 0 })
        .build()
        .expect("valid settings");
    open_breakers(case, &resilience, &store).await;

    let policy = leaked(case.policy());
    let mut start = None;
    let mut seen = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        step.store.script(&store);
        let guarded = Guarded {
            policy,
            handler: step.handler,
        };
        at_its_slot(index.try_into().expect("few"), &mut start).await;
        let request = step.request.to_request(case.auth_header());
        let response = match case.installed {
            Installed::With => guarded.with(resilience.clone()).get_response(request).await,
            Installed::Data => guarded.data(resilience.clone()).get_response(request).await,
        };
        seen.push(Seen::of(response).await);
    }
    seen
}

/// Opens the breakers that are open in this case as an outage would: by failures.
async fn open_breakers(case: &Case, resilience: &Resilience, store: &ScriptedStore) {
    store.down();
    for operation in Operation::ALL.into_iter().filter(|operation| case.is_open(*operation)) {
        let policy = Policy::new("chain_model", "failing").with_breaker(case.breakers());
        let policy = leaked(match operation {
            Operation::Auth => policy.with_auth(Auth::fail_closed()),
            Operation::Flag => policy.with_flags(leaked([Flag::new("failing", false)])),
            Operation::RateLimit => policy.with_rate_limits(leaked([RateLimit::new(1, Duration::from_secs(1))])),
        });
        let guarded = Guarded {
            policy,
            handler: HandlerPlan::default(),
        };
        let guarded = guarded.with(resilience.clone());
        for _ in 0..FAILURES_TO_OPEN {
            guarded
                .get_response(Request::builder().header("x-api-key", "k").finish())
                .await;
        }
        let name = case.breaker_of(operation);
        let breakers = resilience.breakers();
        let breaker = breakers
            .iter()
            .find(|breaker| breaker.name() == name)
            .expect("it is known");
        assert_eq!(breaker.state(), State::Open, "{name}");
    }
}

/// What the attribute's expansion does: a handler behind its policy.
struct Guarded {
    policy: &'static Policy,
    handler: HandlerPlan,
}

impl Endpoint for Guarded {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        resilience::__private::run(self.policy, request, self.handler).await
    }
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
