//! What the attribute tells the program about itself.

use poem::{Request, handler};
use resilience::{
    Identity, Resilience,
    guard::{
        BoxError, BoxFuture, Guard, Verdict,
        auth::{AuthError, Authenticator, Verified},
    },
    resilient,
};

#[derive(Debug)]
struct Nobody;

impl Guard for Nobody {
    fn name(&self) -> &'static str {
        "nobody"
    }

    fn check<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
        Box::pin(async { Ok(Verdict::Pass) })
    }
}

impl Authenticator for Nobody {
    fn authenticate<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verified, AuthError>> {
        Box::pin(async { Err(AuthError::Missing) })
    }

    fn challenge(&self) -> &'static str {
        "Bearer"
    }
}

static NOBODY: Nobody = Nobody;

#[resilient(
    deadline = "2s",
    rate_limit(9, "1h", key = user, on_outage = "fail_local", deadline = "50ms"),
    guard(NOBODY),
    auth("fail_closed", header = "x-attribute-token"),
    flag("attribute", default = true, blocks_when = "off", stale = "30s"),
    rate_limit(30, 60),
    breaker = "per_operation"
)]
#[handler]
async fn listed_out_of_order(_user: Identity) {}

#[tokio::test(start_paused = true)]
async fn policies_list_the_guards_in_the_order_in_which_they_run() {
    let resilience = Resilience::builder().memory().build().expect("valid settings");
    let _endpoint = poem::get(listed_out_of_order);
    let policies = resilience.policies();
    let policy = policies
        .iter()
        .find(|policy| policy.handler() == "listed_out_of_order")
        .expect("it is registered");
    assert_eq!(policy.module(), module_path!());
    let guards: Vec<_> = policy
        .guards()
        .iter()
        .map(|guard| {
            let breaker = guard.breaker.as_deref().unwrap_or("-");
            format!(
                "{} | {:?} | {} | {breaker}",
                guard.guard, guard.deadline, guard.on_outage
            )
        })
        .collect();
    assert_eq!(
        guards,
        [
            "rate_limit 30 in 60s by ip | 80ms | fail_open | rate_limit",
            "flag attribute blocks when off | 100ms | last value for 30s, then on | flag",
            "auth by x-attribute-token | 150ms | fail_closed | auth",
            "guard nobody | 100ms | fail_closed | -",
            "rate_limit 9 in 3600s by user | 50ms | fail_local | rate_limit",
        ]
    );
    assert_eq!(policy.deadline(), Some(super::ms(2_000)));
    assert!(policies.is_sorted_by_key(|policy| (policy.module(), policy.handler())));
}

#[tokio::test(start_paused = true)]
async fn verify_finds_what_only_the_whole_program_shows() {
    let resilience = Resilience::builder().memory().build().expect("valid settings");
    assert_eq!(resilience.verify(), Ok(()));

    let own = Resilience::builder()
        .memory()
        .authenticator(Nobody)
        .build()
        .expect("valid settings");
    let error = own.verify().expect_err("nobody reads the policy's header");
    assert!(
        error
            .mistakes()
            .iter()
            .any(|mistake| { mistake.contains("listed_out_of_order") && mistake.contains("x-attribute-token") }),
        "{error}"
    );
}
