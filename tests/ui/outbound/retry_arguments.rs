//! What only one attempt could have.

use resilience::{Error, outbound};

struct Payments(u32);

impl Payments {
    #[outbound(retry(3))]
    async fn by_value(self) -> Result<u32, Error> {
        Ok(self.0)
    }

    #[outbound(retry(3))]
    async fn by_mutable_reference(&mut self, log: &mut Vec<u32>) -> Result<u32, Error> {
        log.push(self.0);
        Ok(self.0)
    }

    #[outbound(retry(3))]
    async fn boxed(self: Box<Self>) -> Result<u32, Error> {
        Ok(self.0)
    }
}

fn main() {}
