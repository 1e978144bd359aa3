//! Refusals that are remembered, and limits that are not what they were.

use super::{
    Endpoint, EndpointExt, HOUR, Key, Limit, OnOutage, Policy, RateLimit, Request, Resilience, StatusCode,
    Unregistered, api,
};

async fn status(app: &impl Endpoint) -> StatusCode {
    app.get_response(Request::default()).await.status()
}

#[tokio::test]
async fn a_refusal_under_one_limit_says_nothing_about_another() {
    let builder = Resilience::builder().memory().limit("limits-api", Limit::new(1, HOUR));
    let resilience = builder.build().expect("valid settings");
    let app = api.with(resilience.clone());
    assert_eq!(status(&app).await, StatusCode::OK);
    for _ in 0..2 {
        assert_eq!(status(&app).await, StatusCode::TOO_MANY_REQUESTS);
    }
    let limits = resilience.limits();
    limits
        .set("limits-api", Limit::new(3, HOUR))
        .await
        .expect("it is known");
    assert_eq!(status(&app).await, StatusCode::OK, "a higher limit lets in at once");
    limits.clear("limits-api").await.expect("it is known");
    for _ in 0..2 {
        assert_eq!(
            status(&app).await,
            StatusCode::TOO_MANY_REQUESTS,
            "the old one still counts"
        );
    }
}

#[tokio::test]
async fn handlers_that_disagree_about_a_name_are_refused_by_their_own_numbers() {
    const ONE: RateLimit = RateLimit::new(1, HOUR)
        .with_name("limits-disagree")
        .with_key(Key::Global);
    static FEW: [RateLimit; 1] = [ONE];
    static MANY: [RateLimit; 1] = [RateLimit::new(50, HOUR)
        .with_name("limits-disagree")
        .with_key(Key::Global)];
    static A: Policy = Policy::new("limits", "few").with_rate_limits(&FEW);
    static B: Policy = Policy::new("limits", "many").with_rate_limits(&MANY);
    for remembered in [0, 100] {
        let builder = Resilience::builder().memory().remember_blocked(remembered);
        let resilience = builder.build().expect("valid settings");
        let few = Unregistered(&A).with(resilience.clone());
        let many = Unregistered(&B).with(resilience);
        assert_eq!(status(&few).await, StatusCode::OK);
        assert_eq!(status(&few).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&many).await, StatusCode::OK, "remembering {remembered}");
    }
}

#[tokio::test]
async fn a_quota_that_nobody_defines_says_the_same_beside_one_that_is_known_to_refuse() {
    const HOURLY: RateLimit = RateLimit::new(1, HOUR).with_name("limits-hourly").with_key(Key::Global);
    const NOBODYS: RateLimit = RateLimit::named("limits-nobodys").with_key(Key::Global);
    static ALONE: [RateLimit; 1] = [HOURLY];
    static OPEN: [RateLimit; 2] = [HOURLY, NOBODYS];
    static CLOSED: [RateLimit; 2] = [HOURLY, NOBODYS.with_on_outage(OnOutage::FailClosed)];
    static A: Policy = Policy::new("limits", "alone").with_rate_limits(&ALONE);
    static B: Policy = Policy::new("limits", "open").with_rate_limits(&OPEN);
    static C: Policy = Policy::new("limits", "closed").with_rate_limits(&CLOSED);
    for remembered in [0, 100] {
        let builder = Resilience::builder().memory().remember_blocked(remembered);
        let resilience = builder.build().expect("valid settings");
        let said = async |policy| {
            let app = Unregistered(policy).with(resilience.clone());
            let response = app.get_response(Request::default()).await;
            let fallback = response.headers().get("x-ratelimit-fallback").cloned();
            let fallback = fallback.map(|value| value.to_str().expect("a word").to_owned());
            (response.status().as_u16(), fallback)
        };
        assert_eq!(said(&A).await, (200, None));
        assert_eq!(said(&A).await, (429, None));
        assert_eq!(said(&B).await, (429, Some("open".into())), "remembering {remembered}");
        assert_eq!(said(&C).await, (503, Some("closed".into())), "remembering {remembered}");
    }
}
