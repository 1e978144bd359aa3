//! Nothing stands twice.

use resilience::outbound;

#[outbound(
    timeout = "1s",
    breaker = "payments",
    retry(3, backoff = "1ms", backoff = "2ms"),
    timeout = "2s",
    breaker = "search",
    retry(2)
)]
async fn options() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "1s")]
#[outbound(retry(3))]
async fn attributes() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    drop((options(), attributes()));
}
