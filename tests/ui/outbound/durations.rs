//! Durations that are none, or make no sense.

use resilience::outbound;

#[outbound(timeout = 500, retry(3, backoff = "fast", max_backoff = "0s"))]
async fn malformed() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "0ms", attempt_timeout = "2h", retry(1), bulkhead(1, queue = 1, queue_timeout = "11m"))]
async fn out_of_bounds() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    drop((malformed(), out_of_bounds()));
}
