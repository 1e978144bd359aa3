//! Serves one body three ways, to compare what the guards cost: `/bare` with no guard, `/naive` with the same three
//! questions asked the plain way, `/guarded` behind the policy. `tests/bench` drives it.

use std::{env, error::Error};

use bb8_redis::{RedisConnectionManager, bb8, redis};
use poem::{
    EndpointExt, Request, Response, Route, Server, get, handler, http::StatusCode, listener::TcpListener, web::Data,
};
use resilience::{
    Identity, Resilience, resilient,
    store::{RedisStore, StoreAdmin},
};

type Pool = bb8::Pool<RedisConnectionManager>;

const BODY: &str = "{\"ok\":true}";

#[handler]
async fn bare() -> &'static str {
    BODY
}

/// A limit that is never reached.
#[resilient(
    auth = "fail_closed",
    flag("checkout", default = false),
    rate_limit(4_000_000_000, 60)
)]
#[handler]
async fn guarded(_user: Identity) -> &'static str {
    BODY
}

/// One exclusive checkout from a pool with default settings, three commands in turn.
#[handler]
async fn naive(request: &Request, Data(pool): Data<&Pool>) -> Response {
    match ask_naively(request, pool).await {
        Ok(true) => BODY.into(),
        Ok(false) => StatusCode::UNAUTHORIZED.into(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into(),
    }
}

async fn ask_naively(request: &Request, pool: &Pool) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let mut connection = pool.get().await?;
    let address = request
        .remote_addr()
        .as_socket_addr()
        .map(|address| address.ip().to_string());
    let counter = format!("naive:{}", address.unwrap_or_default());
    let count: u64 = redis::cmd("INCR").arg(&counter).query_async(&mut *connection).await?;
    if count == 1 {
        let _: () = redis::cmd("EXPIRE")
            .arg(&counter)
            .arg(60)
            .query_async(&mut *connection)
            .await?;
    }
    let killed: Option<String> = redis::cmd("GET")
        .arg("flag:checkout")
        .query_async(&mut *connection)
        .await?;
    let key = request.header("x-api-key").unwrap_or_default();
    let user: Option<String> = redis::cmd("GET")
        .arg(format!("apikey:{key}"))
        .query_async(&mut *connection)
        .await?;
    Ok(killed.as_deref() != Some("1") && user.is_some())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL")?;
    let port = env::var("PORT")?;
    let pool = bb8::Pool::builder()
        .build(RedisConnectionManager::new(url.as_str())?)
        .await?;
    let () = redis::cmd("SET")
        .arg("apikey:letmein")
        .arg("user-42")
        .query_async(&mut *pool.get().await?)
        .await?;
    RedisStore::new(&url)?.add_api_key("letmein", "user-42").await?;
    let resilience = Resilience::builder().redis(&url).build()?;
    let app = Route::new()
        .at("/bare", get(bare))
        .at("/naive", get(naive.data(pool)))
        .at("/guarded", get(guarded.with(resilience)));
    Server::new(TcpListener::bind(format!("127.0.0.1:{port}")))
        .run(app)
        .await?;
    Ok(())
}
