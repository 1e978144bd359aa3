//! Zero, negative, absurd and missing numbers.

use resilience::outbound;

#[outbound(retry(0), bulkhead(0, queue = 0))]
async fn zero() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(-1), bulkhead(-16))]
async fn negative() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(1000), bulkhead(4_000_000, queue = 2_000_000))]
async fn absurd() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(), bulkhead())]
async fn missing() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry("3"), bulkhead(SIXTEEN))]
async fn no_literal() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    drop((zero(), negative(), absurd(), missing(), no_literal()));
}
