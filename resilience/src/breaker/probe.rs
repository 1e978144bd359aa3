//! The slots of a half-open circuit.

/// Probes that are out, as leases, and those that have come back well.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    slots: u32,
    /// How many may be out at a time; what has succeeded is out no longer.
    at_once: u32,
    succeeded: u32,
    out: Vec<Lease>,
    /// Never repeated, so that a lease of an earlier round is not mistaken for a present one.
    next_id: u64,
}

#[derive(Clone, Debug)]
struct Lease {
    id: u64,
    expires: u64,
}

impl Probes {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots,
            at_once: slots,
            succeeded: 0,
            out: Vec::new(),
            next_id: 0,
        }
    }

    /// Lets them out one after another, or all at once.
    pub(super) fn one_by_one(&mut self, one_by_one: bool) {
        self.at_once = if one_by_one { 1 } else { self.slots };
    }

    /// Whether any is out, as far as is known.
    pub(super) fn is_out(&self, now: u64) -> bool {
        self.out.iter().any(|lease| now < lease.expires)
    }

    /// Forgets all leases and results; their answers are then unknown here.
    pub(super) fn clear(&mut self) {
        self.succeeded = 0;
        self.out.clear();
    }

    /// Takes a slot, if one is free, until `expires`.
    pub(super) fn lease(&mut self, now: u64, expires: u64) -> Option<u64> {
        self.out.retain(|lease| now < lease.expires);
        if self.is_full() {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.out.push(Lease { id, expires });
        Some(id)
    }

    /// Gives a slot back. Whether the lease was still valid: if not, the answer must change nothing.
    pub(super) fn give_back(&mut self, id: u64, now: u64) -> bool {
        let Some(index) = self.out.iter().position(|lease| lease.id == id) else {
            return false;
        };
        now < self.out.swap_remove(index).expires
    }

    /// Counts the success of a probe that was given back. Whether it was the last one needed.
    pub(super) fn succeed(&mut self) -> bool {
        self.succeeded += 1;
        self.succeeded == self.slots
    }

    /// The time from which [`lease`](Self::lease) finds a free slot.
    pub(super) fn free_at(&self) -> u64 {
        if self.is_full() {
            self.out.iter().map(|lease| lease.expires).min().unwrap_or(u64::MAX)
        } else {
            0
        }
    }

    fn is_full(&self) -> bool {
        // Slots of the succeeded stay taken: what closes the circuit is this round's probes and no others.
        let out = self.out.len() as u64;
        out >= u64::from(self.at_once) || out + u64::from(self.succeeded) >= u64::from(self.slots)
    }
}
