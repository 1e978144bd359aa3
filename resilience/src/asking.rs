//! What passes between a question and the store's client within one poll of their future, beside its output: for whom it
//! is asked, and how long the store took.
//!
//! Both sides run on one thread during that poll, so that cells of the thread carry it.

use std::{cell::Cell, time::Duration};

use crate::standing::Standing;

thread_local! {
    static STANDING: Cell<Standing> = const { Cell::new(Standing::Unknown) };
    static TOOK: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The standing of the caller for whom the future is polled at present.
pub(crate) fn standing() -> Standing {
    STANDING.get()
}

/// Notes that a reply has come, this long after its command was sent.
pub(crate) fn store_took(took: Duration) {
    TOOK.set(Some(took));
}

/// Polls for a caller of this standing. The second value is the time of the store's last reply in this poll, if there was
/// one.
pub(crate) fn poll_for<R>(standing: Standing, poll: impl FnOnce() -> R) -> (R, Option<Duration>) {
    let outer = STANDING.replace(standing);
    TOOK.set(None);
    let result = poll();
    STANDING.set(outer);
    (result, TOOK.take())
}
