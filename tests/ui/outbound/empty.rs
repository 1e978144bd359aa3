//! An attribute that adds nothing is a mistake, and the fn stays usable.

use resilience::outbound;

#[outbound]
async fn bare() -> Result<(), resilience::Error> {
    Ok(())
}

#[outbound()]
async fn with_parentheses() -> Result<(), resilience::Error> {
    Ok(())
}

fn main() {
    drop((bare(), with_parentheses()));
}
