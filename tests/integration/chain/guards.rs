//! Guards of the user's own.

use std::time::Duration;

use poem::{Request, handler, http::StatusCode};
use resilience::{
    Error, Identity,
    guard::{BoxError, BoxFuture, Guard, GuardOutage, Verdict},
    resilient,
    testing::{Answer, ScriptedStore},
};
use tokio::time::{advance, sleep};

use super::{app, ask, ms, over, request, timed};

/// Decides as the request's header `x-{name}` tells it to.
#[derive(Debug)]
struct Told {
    name: &'static str,
    on_outage: GuardOutage,
}

impl Guard for Told {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
        Box::pin(async move {
            match request.header(format!("x-{}", self.name)).unwrap_or("pass") {
                "pass" => Ok(Verdict::Pass),
                "late" => {
                    sleep(Duration::from_millis(41)).await;
                    Ok(Verdict::Pass)
                }
                "reject" => {
                    let who = Identity::of(request).map_or("nobody", |user| &user.0).to_owned();
                    let error = Error::new(StatusCode::FORBIDDEN, "not_you", format!("Not you, {who}."));
                    Ok(Verdict::Reject(error.with_retry_after(Duration::from_millis(1_200))))
                }
                "fail" => Err("password=secret".into()),
                "hang" => std::future::pending().await,
                told => panic!("nobody knows how to {told}"),
            }
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(40)
    }

    fn on_outage(&self) -> GuardOutage {
        self.on_outage
    }
}

static STRICT: Told = Told {
    name: "strict",
    on_outage: GuardOutage::FailClosed,
};

static LENIENT: Told = Told {
    name: "lenient",
    on_outage: GuardOutage::FailOpen,
};

#[resilient(
    auth = "fail_closed",
    guard(STRICT),
    guard(LENIENT),
    rate_limit(10, 60, key = user),
    flag("guards", default = false)
)]
#[handler]
async fn guarded(Identity(user): Identity) -> String {
    user
}

fn known() -> ScriptedStore {
    ScriptedStore::new().on_identity(Answer::ok(Some("ada")))
}

fn told(strict: &str, lenient: &str) -> Request {
    request(&[("x-api-key", "letmein"), ("x-strict", strict), ("x-lenient", lenient)])
}

#[tokio::test(start_paused = true)]
async fn what_all_guards_pass_reaches_the_handler() {
    let answered = ask(&app(guarded, over(&known())), told("pass", "pass")).await;
    assert_eq!(answered.summary(), (200, "ada".into()));
    assert_eq!(answered.header("x-guard-fallback"), None);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_the_answer_knows_the_caller_and_costs_no_quota() {
    let store = known();
    let answered = ask(&app(guarded, over(&store)), told("reject", "fail")).await;
    assert_eq!(answered.summary(), (403, "not_you".into()));
    assert_eq!(answered.json()["message"], "Not you, ada.");
    assert_eq!(answered.lines(), ["retry-after: 2"]);
    assert_eq!(store.calls().take, 0);
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_not_asked_when_an_earlier_one_refuses() {
    let store = known().on_identity(Answer::ok(None));
    let answered = ask(&app(guarded, over(&store)), told("panic", "panic")).await;
    assert_eq!(answered.summary(), (401, "invalid_api_key".into()));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_decide_refuses_unless_it_fails_open() {
    for (how, took) in [("fail", ms(0)), ("hang", ms(40))] {
        let (answered, waited) = timed(&app(guarded, over(&known())), told(how, "pass")).await;
        assert_eq!((answered.summary(), waited), ((503, "guard_unavailable".into()), took));
        assert!(!answered.body.contains("secret"));

        let (answered, waited) = timed(&app(guarded, over(&known())), told("pass", how)).await;
        assert_eq!((answered.summary(), waited), ((200, "ada".into()), took));
        assert_eq!(answered.header("x-guard-fallback").as_deref(), Some("lenient"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_shows_on_a_later_refusal_too() {
    let store = known().on_take(Answer::ok(super::full(ms(1_000))));
    let answered = ask(&app(guarded, over(&store)), told("pass", "fail")).await;
    assert_eq!(answered.summary(), (429, "rate_limited".into()));
    assert_eq!(answered.header("x-guard-fallback").as_deref(), Some("lenient"));
}

#[tokio::test(start_paused = true)]
async fn a_late_verdict_is_not_used() {
    let app = app(guarded, over(&known()));
    // The clock leaps: verdict and deadline are both past when anybody looks.
    let late = async { ask(&app, told("late", "pass")).await };
    let leap = async {
        sleep(ms(1)).await;
        advance(ms(100)).await;
    };
    let (answered, ()) = tokio::join!(late, leap);
    assert_eq!(answered.summary(), (503, "guard_unavailable".into()));
}
