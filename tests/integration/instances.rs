//! Several instances of a service over one Redis, and one whose Redis takes no writes.

use std::time::Duration;

use futures_util::future::join_all;
use poem::{Endpoint, EndpointExt, Request, Response, get, handler, http::StatusCode};
use resilience::{
    BreakerChoice, Builder, Identity, Resilience, ResilienceEndpoint,
    breaker::{BreakerConfig, State},
    resilient,
    store::{RedisStore, StoreAdmin},
};
use resilience_tests::{RedisServer, eventually};
use tokio::{task::yield_now, time::sleep};

/// Longer than a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(5);

/// Such a window does not end in mid-test.
#[resilient(rate_limit(100, "366d"))]
#[handler]
async fn counted() {}

#[resilient(auth = "fail_closed", rate_limit(100, "366d"))]
#[handler]
async fn checkout(Identity(user): Identity) -> String {
    user
}

#[resilient(rate_limit(3, 1))]
#[handler]
async fn sliding() {}

#[resilient(rate_limit(3, 1, algorithm = "fixed_window"))]
#[handler]
async fn fixed() {}

#[resilient(rate_limit(3, 1, algorithm = "token_bucket", burst = 2))]
#[handler]
async fn bucket() {}

#[resilient(lockout(2, "1s", key = ip))]
#[handler]
async fn login() -> StatusCode {
    StatusCode::UNAUTHORIZED
}

/// Settings of an instance with connections of its own.
async fn instance(redis: &RedisServer) -> (Builder, RedisStore) {
    let store = RedisStore::builder(redis.url())
        .checkout_timeout(DEADLINE)
        .build()
        .unwrap();
    eventually("two connections serve", async || store.connections() == 2).await;
    let settings = Resilience::builder()
        .store(store.clone())
        .breaker(BreakerConfig::default().with_open_for(Duration::from_millis(200)))
        .auth_deadline(DEADLINE)
        .rate_limit_deadline(DEADLINE);
    (settings, store)
}

async fn ask<E: Endpoint>(app: &ResilienceEndpoint<E>) -> Response {
    let request = Request::builder().header("x-api-key", "letmein").finish();
    app.get_response(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_share_one_limit() {
    let redis = RedisServer::start();
    let mut apps = Vec::new();
    for _ in 0..3 {
        let (settings, _) = instance(&redis).await;
        apps.push(get(counted).with(settings.build().unwrap()));
    }
    let answers = join_all((0..300).map(|nth| ask(&apps[nth % 3]))).await;
    let passed = answers
        .iter()
        .filter(|answer| answer.status() == StatusCode::OK)
        .count();
    assert_eq!(passed, 100);
    for refused in answers.iter().filter(|answer| answer.status() != StatusCode::OK) {
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_in_mid_traffic_cost_no_instance_a_request_and_count_none_twice() {
    let redis = RedisServer::start();
    let (one, _) = instance(&redis).await;
    let (two, _) = instance(&redis).await;
    let apps = [one, two].map(|settings| get(counted).with(settings.build().unwrap()));
    let forget = async {
        for _ in 0..20 {
            redis.cli(&["SCRIPT", "FLUSH"]);
            yield_now().await;
        }
    };
    let (answers, ()) = tokio::join!(join_all((0..160).map(|nth| ask(&apps[nth % 2]))), forget);
    let passed = answers
        .iter()
        .filter(|answer| answer.status() == StatusCode::OK)
        .count();
    assert_eq!(passed, 100);
    assert!(
        answers
            .iter()
            .all(|answer| answer.header("x-ratelimit-fallback").is_none())
    );
}

/// Whoever waits as long as a 429 says gets in.
async fn waits_are_enough(app: ResilienceEndpoint<impl Endpoint>) {
    for _ in 0..3 {
        let refused = loop {
            let answer = ask(&app).await;
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                break answer;
            }
        };
        let wait = refused.header("retry-after").and_then(|wait| wait.parse().ok());
        sleep(Duration::from_secs(wait.expect("whole seconds"))).await;
        assert_ne!(ask(&app).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_as_long_as_the_answer_says_gets_in() {
    let redis = RedisServer::start();
    let (settings, _) = instance(&redis).await;
    let resilience = settings.lockout_deadline(DEADLINE).build().unwrap();
    tokio::join!(
        waits_are_enough(get(sliding).with(resilience.clone())),
        waits_are_enough(get(fixed).with(resilience.clone())),
        waits_are_enough(get(bucket).with(resilience.clone())),
        waits_are_enough(get(login).with(resilience.clone())),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_leaves_authentication_serving() {
    let redis = RedisServer::start();
    let (settings, store) = instance(&redis).await;
    store.add_api_key("letmein", "user-42").await.unwrap();
    let resilience = settings.breakers(BreakerChoice::PerOperation).build().unwrap();
    let app = get(checkout).with(resilience.clone());
    let state = |name: &str| {
        let breakers = resilience.breakers();
        let breaker = breakers.iter().find(|breaker| breaker.name() == name);
        breaker.expect("one per operation").state()
    };
    assert_eq!(ask(&app).await.header("x-ratelimit-remaining"), Some("99"));

    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..20 {
        let answer = ask(&app).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.header("x-ratelimit-fallback"), Some("open"));
        assert_eq!(answer.into_body().into_string().await.unwrap(), "user-42");
    }
    assert_ne!(state("rate_limit"), State::Closed);
    assert_eq!(state("auth"), State::Closed);

    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("limits count again", async || {
        ask(&app).await.header("x-ratelimit-fallback").is_none()
    })
    .await;
}
