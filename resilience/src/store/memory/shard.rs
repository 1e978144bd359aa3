//! What is kept of clients, by quota or lockout, behind one lock.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, binary_heap::PeekMut, hash_map},
    sync::Arc,
};

/// Entries that one call looks at to give their memory back. More than one, so that reclaiming outruns adding; few, so
/// that no request pays for all that has expired since the last one.
const RECLAIMED_AT_ONCE: usize = 4;

/// Values by two texts, a quota's or lockout's id and a client, and the order in which they expire.
pub(super) struct Shard<V> {
    slots: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Option<Entry<V>>>,
    vacant: Vec<usize>,
    /// One element per entry. Its time may lag behind the entry's, which lives on whenever it is used: it is put right
    /// when it comes up, once per window at most.
    expiry: BinaryHeap<Reverse<(u64, usize)>>,
    scratch: Vec<u8>,
}

struct Entry<V> {
    key: Arc<[u8]>,
    stored: V,
    expires: u64,
}

// Not derived: an empty one needs no empty value.
impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self {
            slots: HashMap::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            expiry: BinaryHeap::new(),
            scratch: Vec::new(),
        }
    }
}

impl<V: Clone + Default> Shard<V> {
    /// Where the value of this client is.
    pub(super) fn find(&mut self, id: &str, client: &str) -> Option<usize> {
        write_key(&mut self.scratch, id, client);
        self.slots.get(self.scratch.as_slice()).copied()
    }

    /// The value in a slot that [`find`](Self::find) gave.
    pub(super) fn stored(&self, slot: usize) -> V {
        self.entries[slot]
            .as_ref()
            .map(|entry| entry.stored.clone())
            .unwrap_or_default()
    }

    /// Replaces the value in a slot that [`find`](Self::find) gave.
    pub(super) fn update(&mut self, slot: usize, stored: V, expires: u64) {
        if let Some(entry) = &mut self.entries[slot] {
            entry.stored = stored;
            entry.expires = expires;
        }
    }

    /// Adds a value; `false` if there was one by now, which is replaced.
    pub(super) fn insert(&mut self, id: &str, client: &str, stored: V, expires: u64) -> bool {
        write_key(&mut self.scratch, id, client);
        let key: Arc<[u8]> = self.scratch.as_slice().into();
        let vacancy = match self.slots.entry(Arc::clone(&key)) {
            hash_map::Entry::Vacant(vacancy) => vacancy,
            hash_map::Entry::Occupied(present) => {
                let slot = *present.get();
                self.update(slot, stored, expires);
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
fn write_key(key: &mut Vec<u8>, id: &str, client: &str) {
    key.clear();
    key.extend_from_slice(&id.len().to_le_bytes());
    key.extend_from_slice(id.as_bytes());
    key.extend_from_slice(client.as_bytes());
}
