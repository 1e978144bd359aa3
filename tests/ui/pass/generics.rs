//! Type parameters and where clauses carry over; the struct has no bounds and is made by `Default`.

use std::fmt::{Debug, Display};

use poem::{FromRequest, IntoResponse, handler, web::Path};
use resilience::resilient;
use serde::de::DeserializeOwned;

#[resilient(rate_limit(30, 60))]
#[handler]
async fn show<T>(Path(value): Path<T>) -> String
where
    T: Display + DeserializeOwned + Send + Sync + 'static,
{
    value.to_string()
}

#[resilient(rate_limit(30, 60))]
#[handler]
fn pair<A: DeserializeOwned + Debug + Send + Sync + 'static, B>(Path(a): Path<A>, b: B) -> impl IntoResponse
where
    B: for<'a> FromRequest<'a> + Debug + Send + Sync + 'static,
{
    format!("{a:?} {b:?}")
}

fn main() {
    let _ = poem::Route::new()
        .at("/show/:value", poem::get(show::<u64>::default()))
        .at("/pair/:a", poem::post(pair::<String, Vec<u8>>::default()));
}
