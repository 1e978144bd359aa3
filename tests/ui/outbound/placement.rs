//! What the attribute cannot stand above.

use std::{future::Future, pin::Pin};

use poem::handler;
use resilience::outbound;

#[outbound(timeout = "1s")]
fn not_async() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "1s")]
fn as_async_trait_makes_it() -> Pin<Box<dyn Future<Output = Result<(), resilience::Error>> + Send>> {
    Box::pin(async { Ok(()) })
}

#[outbound(timeout = "1s")]
#[handler]
async fn a_handler() -> poem::Result<String> {
    Ok(String::new())
}

#[outbound(timeout = "1s")]
struct Payments;

trait Quotes {
    #[outbound(timeout = "1s")]
    async fn without_body(&self) -> Result<(), resilience::Error>;
}

fn main() {
    let _ = (not_async(), as_async_trait_makes_it(), poem::get(a_handler));
}
