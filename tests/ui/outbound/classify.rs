//! Classifiers of the wrong shape.

use resilience::{Error, outbound, pipeline::Verdict};

#[outbound(retry(1), classify = by_value)]
async fn one() -> Result<u32, Error> {
    Ok(1)
}

fn by_value(_: Result<u32, Error>) -> Verdict {
    Verdict::success()
}

#[outbound(retry(1), classify = a_bool)]
async fn two() -> Result<u32, Error> {
    Ok(1)
}

fn a_bool(_: Result<&u32, &Error>) -> bool {
    true
}

fn main() {
    drop((one(), two()));
    let _ = (by_value, a_bool);
}
