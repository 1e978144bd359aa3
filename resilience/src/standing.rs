//! How callers were answered lately, in two small tables of fixed size.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// How a caller was answered lately: who is served first while questions wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Its credential was verified within the last hour.
    Good,
    Unknown,
    /// A credential from this caller was wrong within the last minute.
    Refused,
}

/// The standing of callers, by credential and by address.
///
/// Each table is an array into which callers are hashed, by a key of this process. Two callers in one place displace each
/// other: one that is forgotten is unknown, which costs it a later place in a line and nothing else.
pub(crate) struct Standings {
    hasher: RandomState,
    epoch: Instant,
    good: Table,
    refused: Table,
}

/// A fingerprint and a minute in each entry.
struct Table {
    entries: Box<[AtomicU64]>,
    minutes: u64,
}

const MINUTE: u64 = 0xffff;

/// Callers in each table, at most: 128 KiB each.
const CALLERS: usize = 1 << 14;

impl Standings {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            epoch: Instant::now(),
            good: Table::new(Duration::from_secs(60 * 60)),
            refused: Table::new(Duration::from_secs(60)),
        }
    }

    /// A credential that was verified.
    pub(crate) fn verified(&self, credential: &str) {
        self.good
            .note(self.hasher.hash_one(("credential", credential)), self.minute());
    }

    /// A client whose credential was wrong.
    pub(crate) fn refused(&self, client: &str) {
        self.refused
            .note(self.hasher.hash_one(("client", client)), self.minute());
    }

    /// The standing of a request with this credential, from this client. The client is worked out only if need be.
    pub(crate) fn of(&self, credential: Option<&str>, client: impl FnOnce() -> Option<String>) -> Standing {
        let minute = self.minute();
        let is_good = |credential| {
            let hash = self.hasher.hash_one(("credential", credential));
            self.good.has(hash, minute)
        };
        if credential.is_some_and(is_good) {
            return Standing::Good;
        }
        let is_refused = |client: String| {
            let hash = self.hasher.hash_one(("client", client.as_str()));
            self.refused.has(hash, minute)
        };
        if client().is_some_and(is_refused) {
            Standing::Refused
        } else {
            Standing::Unknown
        }
    }

    /// Minutes since the start, from 1 to `MINUTE` and around: an empty entry is of no minute.
    fn minute(&self) -> u64 {
        1 + self.epoch.elapsed().as_secs() / 60 % MINUTE
    }
}

impl Table {
    fn new(kept: Duration) -> Self {
        Self {
            entries: (0..CALLERS).map(|_| AtomicU64::new(0)).collect(),
            minutes: kept.as_secs() / 60,
        }
    }

    fn note(&self, hash: u64, minute: u64) {
        let (entry, noted) = (self.entry(hash), hash & !MINUTE | minute);
        // Most callers were noted a moment ago: a look spares the other threads a write.
        if entry.load(Ordering::Relaxed) != noted {
            entry.store(noted, Ordering::Relaxed);
        }
    }

    fn has(&self, hash: u64, minute: u64) -> bool {
        let noted = self.entry(hash).load(Ordering::Relaxed);
        let at = noted & MINUTE;
        noted & !MINUTE == hash & !MINUTE && at != 0 && (minute + MINUTE - at) % MINUTE <= self.minutes
    }

    fn entry(&self, hash: u64) -> &AtomicU64 {
        // The low bits, which the fingerprint leaves out.
        &self.entries[hash as usize & (CALLERS - 1)]
    }
}

impl fmt::Debug for Standings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standings").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(standings: &Standings, credential: &str, client: &str) -> Standing {
        standings.of(Some(credential), || Some(client.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_is_good_for_an_hour() {
        let standings = Standings::new();
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Unknown);
        standings.verified("letmein");
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Good);
        assert_eq!(standing(&standings, "letmeout", "ip:a"), Standing::Unknown);
        tokio::time::advance(Duration::from_secs(60 * 60)).await;
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Good);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_credential_sets_its_address_back_for_a_minute() {
        let standings = Standings::new();
        standings.refused("ip:a");
        standings.verified("letmein");
        assert_eq!(standing(&standings, "guess", "ip:a"), Standing::Refused);
        assert_eq!(standing(&standings, "guess", "ip:b"), Standing::Unknown);
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Good);
        assert_eq!(standings.of(None, || None), Standing::Unknown);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(standing(&standings, "guess", "ip:a"), Standing::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_may_run_for_weeks() {
        let standings = Standings::new();
        tokio::time::advance(Duration::from_secs(60 * MINUTE)).await;
        standings.verified("letmein");
        tokio::time::advance(Duration::from_secs(60 * 30)).await;
        assert_eq!(standing(&standings, "letmein", "ip:a"), Standing::Good);
    }
}
