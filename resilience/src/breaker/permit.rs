use std::{fmt, mem, ops::Deref, sync::Arc, time::Duration};

use super::{
    Shared,
    event::{Outcome, State},
    state::{Entry, Ticket},
};
use crate::clock::nanos;

/// Leave for one call, to be given back with the call's outcome.
///
/// Dropping it without one is [`neutral`](Self::neutral): a call that was cancelled or panicked says nothing about what
/// stands behind the breaker, and a probe's slot goes to the next call. A permit that was let in before the state last
/// changed, and a probe whose lease has expired, change nothing any more.
#[must_use = "a permit that is dropped counts as neutral"]
pub struct Permit<'a> {
    breaker: Handle<'a>,
    /// `None` once settled.
    entry: Option<Entry>,
    started: u64,
}

pub(super) enum Handle<'a> {
    Borrowed(&'a Shared),
    Owned(Arc<Shared>),
}

impl<'a> Permit<'a> {
    #[inline]
    pub(super) fn new(breaker: Handle<'a>, ticket: Ticket) -> Self {
        Self {
            breaker,
            entry: Some(ticket.entry),
            started: ticket.started,
        }
    }

    /// Says how long the call took, for a call that waited for something else too before it was reported.
    #[inline]
    pub(crate) fn took(mut self, took: Duration) -> Self {
        // Only a rule over slow calls has noted a start.
        if self.started != 0 {
            self.started = self.breaker.clock.nanos().saturating_sub(nanos(took));
        }
        self
    }

    /// The call was answered.
    #[inline]
    pub fn success(self) {
        self.record(Outcome::Success);
    }

    /// The call failed. Whether this very report opened the circuit, or reopened it.
    #[inline]
    pub fn failure(self) -> bool {
        self.record(Outcome::Failure)
    }

    /// Nothing was learnt; the same as dropping the permit.
    #[inline]
    pub fn neutral(self) {
        self.record(Outcome::Neutral);
    }

    /// Gives the permit back with this outcome. Whether this very report opened the circuit, or reopened it.
    #[inline]
    pub fn record(mut self, outcome: Outcome) -> bool {
        self.settle(outcome)
    }

    /// Whether the call is a probe of a half-open circuit.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        matches!(self.entry, Some(Entry::Probe { .. }))
    }

    #[inline]
    fn settle(&mut self, outcome: Outcome) -> bool {
        let started = self.started;
        match mem::take(&mut self.entry) {
            Some(entry) => self.breaker.settle(Ticket { entry, started }, outcome) == Some(State::Open),
            None => false,
        }
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.settle(Outcome::Neutral);
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("breaker", &self.breaker.name)
            .field("is_probe", &self.is_probe())
            .finish_non_exhaustive()
    }
}

impl Deref for Handle<'_> {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }
}
