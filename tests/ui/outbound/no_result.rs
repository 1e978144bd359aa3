//! Without a `Result` there is nothing to say that a call was refused or late.

use resilience::outbound;

struct Answer;

#[outbound(timeout = "1s")]
async fn nothing() {}

#[outbound(timeout = "1s")]
async fn text() -> String {
    String::new()
}

#[outbound(timeout = "1s")]
async fn optional() -> Option<u32> {
    None
}

#[outbound(timeout = "1s")]
async fn pair() -> (u32, u32) {
    (1, 2)
}

fn main() {
    drop((nothing(), text(), optional(), pair()));
}
