//! A breaker without clock and readers that a model can copy.

use super::{
    BreakerConfig, News, Order, Outcome,
    state::{Entry, Machine, Ticket},
};

/// A circuit that has joined others.
#[derive(Clone, Debug)]
pub(crate) struct Circuit(Machine);

/// A call that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(Ticket);

impl Circuit {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        let machine = Machine::new(config);
        machine.join();
        Self(machine)
    }

    pub(crate) fn call(&self, now: u64) -> Option<Call> {
        self.0.admit(|| now).ok().map(Call)
    }

    pub(crate) fn end(&self, call: Call, outcome: Outcome, now: u64) {
        self.0.settle(call.0, outcome, || now);
        self.0.publish(drop);
    }

    pub(crate) fn news(&self, now: u64) -> News {
        self.0.news(now)
    }

    pub(crate) fn obey(&self, generation: u64, order: Order, now: u64) -> Option<u64> {
        let obeyed = self.0.obey(generation, order, now);
        self.0.publish(drop);
        obeyed
    }

    pub(crate) fn part(&self) {
        self.0.part();
        self.0.publish(drop);
    }
}

impl Call {
    pub(crate) fn is_probe(self) -> bool {
        matches!(self.0.entry, Entry::Probe { .. })
    }
}
