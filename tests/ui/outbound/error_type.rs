//! The error type has to be able to hold our rejections.

use resilience::outbound;

#[derive(Debug)]
struct PaymentError;

#[outbound(timeout = "1s", breaker = "payments")]
async fn quote(order: u32) -> Result<u32, PaymentError> {
    if order == 0 {
        return Err(PaymentError);
    }
    Ok(order)
}

#[outbound(retry(3))]
async fn retried(order: u32) -> std::io::Result<u32> {
    Ok(order)
}

fn main() {
    drop((quote(1), retried(1)));
}
