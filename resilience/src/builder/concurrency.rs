//! Who waits for a slot, and how long an answer may hold one.

use std::{sync::Arc, time::Duration};

use poem::Request;

use super::Builder;
use crate::{concurrency::Priority, guard::concurrency::PriorityOf};

impl Builder {
    /// Raises or lowers the priority of single requests; it is given the handler's own. It counts where a handler's
    /// `concurrency` has a queue.
    ///
    /// It runs once for each request that wants a slot, after all other guards have passed, so that it may look at the
    /// [`Identity`](crate::Identity). It must be quick and must not block. Go by what only those can send whom you mean:
    /// anybody can copy a header, and whoever is critical sheds others.
    ///
    /// ```
    /// # use resilience::{Identity, Resilience, concurrency::Priority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), resilience::BuildError> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .priority(|request, own| match Identity::of(request) {
    ///         Some(user) if user.0 == "operator" => Priority::Critical,
    ///         _ => own,
    ///     })
    ///     .build()?;
    /// # drop(resilience);
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(mut self, of: impl Fn(&Request, Priority) -> Priority + Send + Sync + 'static) -> Self {
        self.priority = PriorityOf(Some(Arc::new(of)));
        self
    }

    /// How long an answer may hold its slot while its body is sent, from 1 ms to 1 h. Then the slot is free and the body
    /// ends in an error: a client that reads slowly must not keep others out.
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = timeout;
        self
    }
}
