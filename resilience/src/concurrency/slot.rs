use std::{fmt, sync::Arc};

use super::Shared;

/// A place among the requests in flight. Dropping it frees the place and hands it on.
#[must_use = "a slot that is dropped gives its place back"]
pub struct Slot {
    shared: Arc<Shared>,
}

impl Slot {
    /// The place must have been taken already.
    #[inline]
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        self.shared.semaphore.release(|| self.shared.clock.nanos());
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}
