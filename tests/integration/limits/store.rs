//! Changes through the store, for all instances.

use poem::{EndpointExt, Request};
use resilience::{Limit, LimitSource, LimitsError, Resilience};
use resilience_tests::RedisServer;

use super::{HOUR, api, eventually, in_force, limit, over, serves};

#[tokio::test]
async fn a_change_on_one_instance_is_picked_up_by_the_others_and_kept_over_restarts() {
    let redis = RedisServer::start();
    let (one, two) = (over(&redis).build().unwrap(), over(&redis).build().unwrap());
    let (app, other) = (api.with(one.clone()), api.with(two.clone()));
    serves(&app, 100).await;
    serves(&other, 100).await;
    one.limits().set("limits-api", Limit::new(7, HOUR)).await.unwrap();
    assert_eq!(
        limit(&app, Request::default()).await.as_deref(),
        Some("7"),
        "here at once"
    );
    serves(&other, 7).await;
    assert_eq!(in_force(&two), (Some(7), Some(LimitSource::Store), 2));
    drop((app, other, one, two));

    let restarted = over(&redis).build().unwrap();
    let app = api.with(restarted.clone());
    serves(&app, 7).await;
    let second = over(&redis).build().unwrap();
    second.limits().clear("limits-api").await.unwrap();
    serves(&app, 100).await;
    assert_eq!(in_force(&restarted).1, Some(LimitSource::Attribute));
    assert_eq!(redis.cli(&["EXISTS", "limits"]), "0");
}

#[tokio::test]
async fn what_makes_no_sense_leaves_what_was_in_force() {
    let redis = RedisServer::start();
    let resilience = over(&redis).build().unwrap();
    let app = api.with(resilience.clone());
    resilience
        .limits()
        .set("limits-api", Limit::new(7, HOUR))
        .await
        .unwrap();
    for nonsense in [
        "{",
        "",
        "\u{0}",
        r#"{"limit":0,"window":"1m"}"#,
        r#"{"limit":9,"window":"1m","burst":3}"#,
    ] {
        redis.cli(&["HSET", "limits", "limits-api", nonsense]);
        resilience.limits().refresh().await.unwrap();
        assert_eq!(in_force(&resilience).0, Some(7), "{nonsense:?}");
    }
    redis.cli(&["DEL", "limits"]);
    redis.cli(&["SET", "limits", "a string"]);
    let error = resilience.limits().refresh().await.unwrap_err();
    assert!(matches!(error, LimitsError::Store(_)), "{error}");
    assert_eq!(in_force(&resilience).0, Some(7));
    redis.cli(&["DEL", "limits"]);
    redis.cli(&["HSET", "limits", "limits-api", r#"{"limit":9,"window":"1h"}"#]);
    serves(&app, 9).await;
}

#[tokio::test]
async fn while_redis_is_gone_the_last_known_limit_stays() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let resilience = over(&redis).build().unwrap();
    resilience
        .limits()
        .set("limits-api", Limit::new(7, HOUR))
        .await
        .unwrap();
    redis.kill();
    let error = resilience.limits().refresh().await.unwrap_err();
    assert!(matches!(error, LimitsError::Store(_)), "{error}");
    assert_eq!(in_force(&resilience), (Some(7), Some(LimitSource::Store), 2));
    redis.restart();
    redis.cli(&["HSET", "limits", "limits-api", r#"{"limit":9,"window":"1h"}"#]);
    eventually("picked up", async || in_force(&resilience).0 == Some(9)).await;
}

#[tokio::test]
async fn a_runtime_starts_without_its_store() {
    let redis = RedisServer::prepare(&[]);
    let resilience: Resilience = over(&redis).build().unwrap();
    assert_eq!(in_force(&resilience), (Some(100), Some(LimitSource::Attribute), 1));
}
