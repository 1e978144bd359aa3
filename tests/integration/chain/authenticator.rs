//! An authenticator of the user's own in place of the look-up.

use std::time::Duration;

use futures_util::FutureExt;
use poem::{Request, handler, http::header, web::Data};
use resilience::{
    Identity,
    guard::{
        BoxFuture,
        auth::{AuthError, Authenticator, Verified},
    },
    resilient,
    testing::ScriptedStore,
};

use super::{Answered, app, ask, ms, over, request, timed};

#[derive(Debug)]
struct Sessions;

/// What a session says beyond who the caller is.
#[derive(Clone, Debug)]
struct Scopes(&'static str);

impl Authenticator for Sessions {
    fn authenticate<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verified, AuthError>> {
        Box::pin(async move {
            match request.header(header::AUTHORIZATION).ok_or(AuthError::Missing)? {
                "valid" => Ok(Verified::new("ada").with(Scopes("read write"))),
                "down" => Err(AuthError::Unavailable("postgres://user:secret@sessions is down".into())),
                "slow" => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(Verified::new("ada"))
                }
                "blocks" => {
                    // The clock stands still for all but this: as if the thread had been kept that long.
                    tokio::time::advance(Duration::from_millis(151)).now_or_never();
                    Ok(Verified::new("ada").with(Scopes("read write")))
                }
                _ => Err(AuthError::Invalid),
            }
        })
    }

    fn challenge(&self) -> &'static str {
        "Bearer realm=\"sessions\""
    }
}

#[resilient(auth = "fail_closed")]
#[handler]
async fn scopes(Identity(user): Identity, Data(Scopes(scopes)): Data<&Scopes>) -> String {
    format!("{user}: {scopes}")
}

async fn sent(authorization: &[(&str, &str)]) -> (Answered, Duration) {
    let store = ScriptedStore::new();
    let app = app(scopes, over(&store).authenticator(Sessions));
    let answered = timed(&app, request(authorization)).await;
    assert_eq!(store.calls().identity, 0, "it stands in the place of the look-up");
    answered
}

#[tokio::test(start_paused = true)]
async fn it_verifies_and_hands_its_findings_to_the_handler() {
    let (answered, _) = sent(&[("authorization", "valid")]).await;
    assert_eq!(answered.summary(), (200, "ada: read write".into()));
}

#[tokio::test(start_paused = true)]
async fn missing_and_invalid_credentials_carry_its_challenge() {
    for (headers, code) in [
        (&[][..], "missing_api_key"),
        (&[("authorization", "stolen")], "invalid_api_key"),
    ] {
        let (answered, _) = sent(headers).await;
        assert_eq!(answered.summary(), (401, code.into()));
        assert_eq!(answered.lines(), ["www-authenticate: Bearer realm=\"sessions\""]);
    }
}

#[tokio::test(start_paused = true)]
async fn it_fails_closed_and_shows_no_cause() {
    let (answered, _) = sent(&[("authorization", "down")]).await;
    assert_eq!(answered.summary(), (503, "auth_unavailable".into()));
    assert_eq!(answered.lines(), ["retry-after: 30"]);
    assert!(!answered.body.contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn its_deadline_is_the_guards() {
    let (answered, took) = sent(&[("authorization", "slow")]).await;
    assert_eq!((answered.code().as_str(), took), ("auth_unavailable", ms(150)));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_kept_the_thread_past_the_deadline_lets_nobody_in() {
    let (answered, _) = sent(&[("authorization", "blocks")]).await;
    assert_eq!(answered.summary(), (503, "auth_unavailable".into()));
}

#[tokio::test(start_paused = true)]
async fn its_failures_leave_the_stores_breaker_alone() {
    let resilience = over(&ScriptedStore::new())
        .authenticator(Sessions)
        .build()
        .expect("valid settings");
    let app = poem::EndpointExt::with(scopes, resilience.clone());
    for _ in 0..10 {
        ask(&app, request(&[("authorization", "down")])).await;
        ask(&app, request(&[("authorization", "slow")])).await;
    }
    assert!(!resilience.health().await.is_degraded());
    assert_eq!(ask(&app, request(&[("authorization", "valid")])).await.status, 200);
}
