use poem::Request;

use super::*;
use crate::{
    Resilience,
    guard::{
        BoxFuture,
        auth::{AuthError, Verified},
    },
};

#[derive(Debug)]
struct Nobody;

impl Authenticator for Nobody {
    fn authenticate<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verified, AuthError>> {
        Box::pin(async { Err(AuthError::Missing) })
    }

    fn challenge(&self) -> &'static str {
        "Bearer"
    }
}

#[tokio::test]
async fn options_that_make_no_sense_are_named() {
    let builder = || Resilience::builder().memory();
    let zero = Duration::ZERO;
    for (builder, named) in [
        (Resilience::builder(), "no store"),
        (builder().breaker(BreakerConfig::default().with_probes(0)), "`breaker`"),
        (builder().breakers(BreakerChoice::Named("")), "`breakers`"),
        (builder().api_keys(ApiKeys::plain()), "`api_keys`"),
        (builder().key_prefix("shop:"), "`key_prefix`"),
        (builder().key_secret("0123456789abcdef"), "`key_secret`"),
        (
            Resilience::builder().redis("redis://localhost").key_secret("hunter2"),
            "`key_secret`",
        ),
        (builder().auth_header("x api key"), "`auth_header`"),
        (builder().auth_header("x-key").authenticator(Nobody), "`auth_header`"),
        (builder().auth_deadline(zero), "`auth_deadline`"),
        (builder().flag_deadline(Duration::from_secs(3_601)), "`flag_deadline`"),
        (builder().rate_limit_deadline(zero), "`rate_limit_deadline`"),
        (
            builder().deadline_header("x deadline", Duration::from_secs(1), ["10.0.0.0/8"]),
            "`deadline_header`",
        ),
        (
            builder().deadline_header("x-deadline-ms", zero, ["10.0.0.0/8"]),
            "`deadline_header`",
        ),
        (
            builder().deadline_header("x-deadline-ms", Duration::from_secs(1), ["10.0.0.1/8"]),
            "`deadline_header`",
        ),
        (builder().send_timeout(zero), "`send_timeout`"),
        (builder().retry_after(zero), "`retry_after`"),
        (builder().ipv6_prefix(0), "`ipv6_prefix`"),
        (builder().ipv6_prefix(129), "`ipv6_prefix`"),
        (builder().local_capacity(0), "`local_capacity`"),
        (builder().remember_blocked(10_000_001), "`remember_blocked`"),
        (Resilience::builder().redis("nonsense"), "`redis`"),
        (
            Resilience::builder().redis("redis://localhost").key_prefix("a b"),
            "`key_prefix`",
        ),
    ] {
        let problem = builder.build().expect_err(named).to_string();
        assert!(problem.contains(named), "{named}: {problem}");
    }
}

#[test]
fn outside_of_a_tokio_runtime_it_is_an_error() {
    let built = Resilience::builder().memory().build();
    assert!(matches!(built, Err(BuildError::NoTokioRuntime)));
}

#[tokio::test]
async fn any_valid_open_time_does_for_redis() {
    for open_for in [Duration::from_micros(1), Duration::from_secs(7 * 24 * 60 * 60)] {
        let breaker = BreakerConfig::default().with_open_for(open_for);
        let built = Resilience::builder()
            .redis("redis://127.0.0.1:1")
            .breaker(breaker)
            .build();
        assert!(built.is_ok(), "{open_for:?}: {built:?}");
    }
}

#[tokio::test]
async fn a_breakers_own_name_is_nobody_elses() {
    for name in ["", "store", "auth", "flag", "rate_limit", "lockout"] {
        let built = Resilience::builder()
            .memory()
            .breakers(BreakerChoice::Named(name))
            .build();
        let error = built.expect_err(name).to_string();
        assert!(error.starts_with("option `breakers` "), "{error}");
    }
    let own = Resilience::builder().memory().breakers(BreakerChoice::Named("own"));
    assert!(own.build().is_ok());
}
