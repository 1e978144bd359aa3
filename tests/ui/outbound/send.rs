//! A call has to be one that any thread may carry on.

use std::rc::Rc;

use resilience::{Error, outbound};

#[outbound(timeout = "1s")]
async fn counted() -> Result<u32, Error> {
    let count = Rc::new(7);
    std::future::ready(()).await;
    Ok(*count)
}

fn main() {
    drop(counted());
}
