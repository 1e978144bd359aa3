//! A part of the clients' counts, behind one lock.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, binary_heap::PeekMut, hash_map},
    sync::Arc,
};

use crate::store::{Take, account::Stored};

/// Entries that one call looks at to give their memory back. More than one, so that reclaiming outruns adding; few, so
/// that no request pays for all that has expired since the last one.
const RECLAIMED_AT_ONCE: usize = 4;

/// Counts by quota and client, and the order in which they expire.
#[derive(Default)]
pub(super) struct Shard {
    slots: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Option<Entry>>,
    vacant: Vec<usize>,
    /// One element per entry. Its time may lag behind the entry's, which lives on whenever it is used: it is put right
    /// when it comes up, once per window at most.
    expiry: BinaryHeap<Reverse<(u64, usize)>>,
    scratch: Vec<u8>,
}

struct Entry {
    key: Arc<[u8]>,
    stored: Stored,
    expires: u64,
}

impl Shard {
    /// Where the counts of this client and quota are.
    pub(super) fn find(&mut self, take: &Take<'_>) -> Option<usize> {
        write_key(&mut self.scratch, take);
        self.slots.get(self.scratch.as_slice()).copied()
    }

    /// The counts in a slot that [`find`](Self::find) gave.
    pub(super) fn stored(&self, slot: usize) -> Option<&Stored> {
        self.entries[slot].as_ref().map(|entry| &entry.stored)
    }

    /// Changes the counts in a slot that [`find`](Self::find) gave.
    pub(super) fn update(&mut self, slot: usize, expires: u64, change: impl FnOnce(&mut Stored)) {
        if let Some(entry) = &mut self.entries[slot] {
            change(&mut entry.stored);
            entry.expires = expires;
        }
    }

    /// Adds counts; `false` if there were some by now, which are replaced.
    pub(super) fn insert(&mut self, take: &Take<'_>, stored: Stored, expires: u64) -> bool {
        write_key(&mut self.scratch, take);
        let key: Arc<[u8]> = self.scratch.as_slice().into();
        let vacancy = match self.slots.entry(Arc::clone(&key)) {
            hash_map::Entry::Vacant(vacancy) => vacancy,
            hash_map::Entry::Occupied(present) => {
                let slot = *present.get();
                self.update(slot, expires, |present| *present = stored);
                return false;
            }
        };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        vacancy.insert(slot);
        self.entries[slot] = Some(Entry { key, stored, expires });
        self.expiry.push(Reverse((expires, slot)));
        true
    }

    /// Drops a few entries that have expired by `now`, and says how many.
    pub(super) fn reclaim(&mut self, now: u64) -> usize {
        let mut dropped = 0;
        for _ in 0..RECLAIMED_AT_ONCE {
            let Some(mut first) = self.expiry.peek_mut().filter(|first| first.0.0 <= now) else {
                break;
            };
            let slot = first.0.1;
            match &self.entries[slot] {
                Some(entry) if entry.expires > now => first.0.0 = entry.expires,
                _ => {
                    PeekMut::pop(first);
                    if let Some(entry) = self.entries[slot].take() {
                        self.slots.remove(&entry.key);
                    }
                    self.vacant.push(slot);
                    dropped += 1;
                }
            }
        }
        dropped
    }
}

/// Both parts in one key. The first part's length stands before it, so that no two pairs are alike.
fn write_key(key: &mut Vec<u8>, take: &Take<'_>) {
    key.clear();
    key.extend_from_slice(&take.quota.id.len().to_le_bytes());
    key.extend_from_slice(take.quota.id.as_bytes());
    key.extend_from_slice(take.client.as_bytes());
}
