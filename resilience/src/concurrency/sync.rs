//! The primitives that the slots stand on; the model checker puts its own in their place.

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
