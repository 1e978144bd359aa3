//! Handlers of one name in one module: each has quotas, lockouts and slots of its own.

use std::marker::PhantomData;

use poem::{
    Endpoint, EndpointExt, FromRequest, Request, RequestBody, Response, Result, endpoint::BoxEndpoint, handler,
    http::StatusCode,
};
use resilience::{Resilience, resilient};

#[resilient(rate_limit(1, "1h", key = global), concurrency(2))]
#[handler]
async fn twin() {}

/// An extractor that takes nothing.
struct Nothing<T>(PhantomData<T>);

impl<'a, T: Send> FromRequest<'a> for Nothing<T> {
    async fn from_request(_: &'a Request, _: &mut RequestBody) -> Result<Self> {
        Ok(Self(PhantomData))
    }
}

type App = BoxEndpoint<'static, Response>;

fn one(resilience: &Resilience) -> App {
    #[resilient(rate_limit(1, "1h", key = global), concurrency(2))]
    #[handler]
    async fn twin() {}
    twin.with(resilience.clone()).map_to_response().boxed()
}

async fn two(resilience: &Resilience) -> App {
    #[resilient(rate_limit(1, "1h", key = global), concurrency(2))]
    #[handler]
    async fn twin() {}
    twin.with(resilience.clone()).map_to_response().boxed()
}

fn generic<T: Send + Sync + 'static>(resilience: &Resilience) -> App {
    #[resilient(rate_limit(1, "1h", key = global), concurrency(2))]
    #[handler]
    async fn twin<U: Send + Sync + 'static>(_: Nothing<U>) {}
    twin::<T>::default().with(resilience.clone()).map_to_response().boxed()
}

struct Routes;

impl Routes {
    fn routes(resilience: &Resilience) -> App {
        #[resilient(rate_limit(1, "1h", key = global), concurrency(2))]
        #[handler]
        async fn twin() {}
        twin.with(resilience.clone()).map_to_response().boxed()
    }
}

async fn status(app: &App) -> StatusCode {
    app.get_response(Request::default()).await.status()
}

#[tokio::test]
async fn handlers_of_one_name_in_different_fns_share_no_quota() {
    let resilience = Resilience::builder().memory().build().expect("valid settings");
    let apps = [
        twin.with(resilience.clone()).map_to_response().boxed(),
        one(&resilience),
        two(&resilience).await,
        generic::<u8>(&resilience),
        Routes::routes(&resilience),
    ];
    for app in &apps {
        assert_eq!(status(app).await, StatusCode::OK);
        assert_eq!(status(app).await, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(resilience.verify(), Ok(()));
}

#[tokio::test]
async fn the_place_of_a_handler_is_in_its_summary_and_in_the_name_of_its_slots() {
    let resilience = Resilience::builder().memory().build().expect("valid settings");
    let module = module_path!();
    let mut places: Vec<_> = resilience
        .policies()
        .iter()
        .filter(|policy| policy.handler() == "twin" && policy.module().contains("places"))
        .map(|policy| policy.module().to_owned())
        .collect();
    let position = places.iter().position(|place| place.contains("Routes"));
    let method = places.remove(position.expect("the handler in a method"));
    assert!(method.ends_with("::routes"), "{method}");
    let expected = ["", "::generic", "::one", "::two"].map(|place| format!("{module}{place}"));
    assert_eq!(places, expected);
    let limits = resilience.concurrency_limits();
    for place in expected {
        let slots = format!("{place}::twin");
        assert!(limits.iter().any(|limit| *limit.name() == *slots), "{slots}");
    }
}
