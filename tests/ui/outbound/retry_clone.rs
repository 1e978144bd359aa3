//! A retry needs its arguments again.

use std::fmt::Display;

use resilience::{Error, outbound};

struct Order(u32);

#[outbound(retry(3))]
async fn named(times: u32, order: Order) -> Result<u32, Error> {
    Ok(order.0 + times)
}

#[outbound(retry(3))]
async fn pattern(Order(number): Order) -> Result<u32, Error> {
    Ok(number)
}

#[outbound(retry(3))]
async fn generic(what: impl Display + Send) -> Result<String, Error> {
    Ok(what.to_string())
}

fn main() {
    drop((named(1, Order(1)), pattern(Order(1)), generic(1)));
}
