//! The primitives that the state machine stands on; the model checker puts its own in their place.

pub(super) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
