//! Attempts and waits have to fit into the time of the call.

use resilience::outbound;

#[outbound(timeout = "500ms", attempt_timeout = "600ms", retry(1))]
async fn attempt_above_timeout() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "500ms", attempt_timeout = "200ms", retry(3))]
async fn attempts_above_timeout() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "500ms", retry(10))]
async fn waits_above_timeout() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(3, backoff = "3s"), timeout = "1h")]
async fn first_wait_above_the_default_cap() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(3, backoff = "200ms", max_backoff = "100ms"))]
async fn first_wait_above_the_cap() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "50ms", bulkhead(4, queue = 4, queue_timeout = "100ms"))]
async fn queue_above_timeout() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {}
