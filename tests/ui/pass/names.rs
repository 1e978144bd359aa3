//! Handlers are unit structs: none may break the locals of generated code, its own or its neighbours'.

use poem::{handler, web::Path};
use resilience::resilient;

#[resilient(rate_limit(30, 60))]
#[handler]
async fn req(Path(id): Path<u64>) -> String {
    id.to_string()
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn body(text: String) -> String {
    text
}

#[resilient(rate_limit(30, 60))]
#[handler]
fn res(Path(id): Path<u64>, text: String) -> String {
    format!("{id} {text}")
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn next(Path(id): Path<u64>, text: String) -> String {
    format!("{id} {text}")
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn p0(text: String) -> String {
    text
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn p1(Path(id): Path<u64>, text: String) -> String {
    format!("{id} {text}")
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn request() {}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn policy() {}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn handler_() {}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn call() {}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn r#async() {}

fn main() {
    let _ = poem::Route::new()
        .at("/req/:id", poem::get(req))
        .at("/body", poem::post(body))
        .at("/res/:id", poem::post(res))
        .at("/next/:id", poem::post(next))
        .at("/p0", poem::post(p0))
        .at("/p1/:id", poem::post(p1))
        .at("/request", poem::get(request))
        .at("/policy", poem::get(policy))
        .at("/handler", poem::get(handler_))
        .at("/call", poem::get(call))
        .at("/async", poem::get(r#async));
}
