//! Mistakes in the body stay where the user made them.

use resilience::{Error, outbound};

#[outbound(timeout = "1s")]
async fn wrong_tail() -> Result<u32, Error> {
    Ok("seven")
}

#[outbound(retry(2))]
async fn wrong_return(early: bool) -> Result<u32, Error> {
    if early {
        return "early";
    }
    Ok(7)
}

#[outbound(timeout = "1s")]
async fn wrong_question_mark() -> Result<u32, Error> {
    let number: u32 = "7".parse()?;
    Ok(number)
}

#[outbound(timeout = "1s")]
async fn no_tail() -> Result<u32, Error> {
    wrong_tail().await?;
}

fn main() {
    drop((wrong_tail(), wrong_return(true), wrong_question_mark(), no_tail()));
}
