//! Fallbacks of the wrong shape.

use resilience::{Error, outbound};

#[outbound(timeout = "1s", fallback = no_argument)]
async fn one() -> Result<u32, Error> {
    Ok(1)
}

async fn no_argument() -> Result<u32, Error> {
    Ok(0)
}

#[outbound(timeout = "1s", fallback = another_value)]
async fn two() -> Result<u32, Error> {
    Ok(1)
}

async fn another_value(_: Error) -> Result<String, Error> {
    Ok(String::new())
}

#[outbound(timeout = "1s", fallback = not_async)]
async fn three() -> Result<u32, Error> {
    Ok(1)
}

fn not_async(_: Error) -> Result<u32, Error> {
    Ok(0)
}

#[outbound(timeout = "1s", fallback = NUMBER)]
async fn four() -> Result<u32, Error> {
    Ok(1)
}

const NUMBER: u32 = 0;

fn main() {
    drop((one(), two(), three(), four(), no_argument(), another_value, not_async));
}
