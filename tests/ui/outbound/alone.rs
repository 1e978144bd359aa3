//! Options that mean nothing without another.

use resilience::{outbound, pipeline::Verdict};

fn judge(_: Result<&(), &resilience::Error>) -> Verdict {
    Verdict::success()
}

#[outbound(attempt_timeout = "200ms")]
async fn attempt_timeout_without_retry() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(timeout = "1s", classify = judge)]
async fn classify_without_breaker_or_retry() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(bulkhead(16, queue_timeout = "50ms"))]
async fn queue_timeout_without_queue() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    let _ = judge;
}
