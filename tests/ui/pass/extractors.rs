//! Extractors, references, patterns, results and bodies stay what they are under poem's own `#[handler]`.

use poem::{
    IntoResponse, Request, Result, handler,
    http::StatusCode,
    web::{Data, Path, Query},
};
use resilience::{Identity, resilient};

struct State {
    greeting: String,
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn several(
    request: &Request,
    Path((id, name)): Path<(u64, String)>,
    Query(mut words): Query<Vec<(String, String)>>,
    Data(state): Data<&State>,
    body: String,
) -> Result<impl IntoResponse> {
    words.sort();
    let length: usize = body.parse().map_err(poem::error::BadRequest)?;
    if length > 10 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    Ok(format!("{} {} {id} {name} {words:?}", state.greeting, request.uri()))
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn maybe_known(user: Option<Identity>) -> String {
    user.map_or_else(|| "nobody".to_owned(), |Identity(user)| user)
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn why_unknown(user: Result<Identity>) -> String {
    user.map_or_else(|error| error.to_string(), |Identity(user)| user)
}

#[resilient(rate_limit(30, 60))]
#[handler]
fn sync_handler(Path(id): Path<u64>) -> Result<String, poem::Error> {
    u32::try_from(id)
        .map(|id| id.to_string())
        .map_err(poem::error::BadRequest)
}

#[resilient(rate_limit(30, 60))]
#[handler]
fn sync_borrowing(request: &Request) -> impl IntoResponse {
    request.uri().to_string()
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn recursive(Path(n): Path<u64>) -> String {
    if n == 0 {
        return String::new();
    }
    Box::pin(recursive(Path(n - 1))).await
}

fn main() {
    let _ = poem::Route::new()
        .at("/several/:id/:name", poem::post(several))
        .at("/maybe", poem::get(maybe_known))
        .at("/why", poem::get(why_unknown))
        .at("/sync/:id", poem::get(sync_handler))
        .at("/borrowing", poem::get(sync_borrowing))
        .at("/recursive/:n", poem::get(recursive));
}
