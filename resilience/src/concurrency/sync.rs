//! The primitives that the semaphore stands on; the model checker puts its own in their place.

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
