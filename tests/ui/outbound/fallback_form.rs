//! A fallback is a path, not an expression.

use resilience::{Error, outbound};

#[outbound(timeout = "1s", fallback = |_| async { Ok(0) })]
async fn closure() -> Result<u32, Error> {
    Ok(1)
}

#[outbound(retry(1), fallback = "cached", classify = judge())]
async fn text() -> Result<u32, Error> {
    Ok(1)
}

fn main() {
    drop((closure(), text()));
}
