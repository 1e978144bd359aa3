//! Unknown words, words that are right elsewhere, and options in the wrong form.

use resilience::outbound;

#[outbound(
    braeker = "payments",
    retires(3),
    cache = "1m",
    deadline = "1s",
    concurrency(4),
    backoff = "50ms",
    queue = 8,
    rate_limit(30, 60),
    name = "payments",
)]
async fn words() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry = 3, breaker("payments"), timeout, bulkhead = 16, "500ms", fallback(words))]
async fn forms() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound(retry(3, backof = "50ms", jitter = true), bulkhead(16, que = 8, 9))]
async fn options() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    drop((words(), forms(), options()));
}
