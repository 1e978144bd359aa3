//! poem's handlers are generic over types only.

use poem::{Request, handler};
use resilience::resilient;

#[resilient(rate_limit(30, 60))]
#[handler]
async fn lifetime<'a>(request: &'a Request) -> &'a str {
    request.uri().path()
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn constant<const N: usize>() -> String {
    N.to_string()
}

#[resilient(rate_limit(30, 60))]
#[handler]
async fn plain() {}

fn main() {
    let _ = (lifetime, constant::<3>, poem::get(plain));
}
