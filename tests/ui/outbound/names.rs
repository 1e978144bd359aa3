//! Names of breakers that are taken, or none.

use resilience::outbound;

#[outbound(breaker = "shared")]
async fn shared() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(breaker = "rate-limit")]
async fn rate_limit() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(breaker = "")]
async fn empty() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(breaker = "the payments")]
async fn space() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(breaker = payments, retry(3, budget = ""), bulkhead(4, name = 4))]
async fn unquoted() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {}
