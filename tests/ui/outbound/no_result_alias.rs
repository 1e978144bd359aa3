//! A type that has no name of its own to judge by is judged by the compiler.

use resilience::outbound;

struct Answer;

#[outbound(timeout = "1s")]
async fn answer() -> Answer {
    Answer
}

fn main() {
    drop(answer());
}
