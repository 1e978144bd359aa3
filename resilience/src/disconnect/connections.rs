//! The open connections of this process, found again by their addresses: a poem request says no more about its own.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use poem::Addr;
use smallvec::SmallVec;
use tokio_util::sync::CancellationToken;

/// None as long as no listener of the process watches: requests then look nothing up.
static CONNECTIONS: OnceLock<Connections> = OnceLock::new();

const SHARDS: usize = 64;

/// Both ends of a connection: the listener's address, and the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    local: SocketAddr,
    remote: SocketAddr,
}

impl Ends {
    /// None where one end is not an internet address.
    pub(super) fn of(local: &Addr, remote: &Addr) -> Option<Self> {
        Some(Self {
            local: *local.as_socket_addr()?,
            remote: *remote.as_socket_addr()?,
        })
    }
}

/// A connection as long as its IO lives.
#[derive(Debug)]
pub(super) struct Connection {
    ends: Ends,
    number: u64,
    gone: CancellationToken,
    within: &'static Connections,
}

impl Connection {
    pub(super) fn open(ends: Ends) -> Self {
        Self::open_within(CONNECTIONS.get_or_init(Connections::default), ends)
    }

    fn open_within(within: &'static Connections, ends: Ends) -> Self {
        let number = within.next.fetch_add(1, Ordering::Relaxed);
        let gone = CancellationToken::new();
        within.shard(ends).entry(ends).or_default().push((number, gone.clone()));
        Self {
            ends,
            number,
            gone,
            within,
        }
    }

    pub(super) fn hang_up(&self) {
        self.gone.cancel();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hang_up();
        let mut shard = self.within.shard(self.ends);
        // The peer may have come back on the same port: only this connection's own entry goes.
        if let Some(same) = shard.get_mut(&self.ends) {
            same.retain(|(number, _)| *number != self.number);
            if same.is_empty() {
                shard.remove(&self.ends);
            }
        }
    }
}

/// The token of the open connection between these ends, if it is known for sure.
pub(super) fn find(ends: impl FnOnce() -> Option<Ends>) -> Option<CancellationToken> {
    CONNECTIONS.get()?.find(ends()?)
}

type Shard = HashMap<Ends, SmallVec<[(u64, CancellationToken); 1]>>;

#[derive(Debug)]
struct Connections {
    next: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Connections {
    fn shard(&self, ends: Ends) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(ends.remote.port()) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listener on `0.0.0.0` may have one peer's port twice, through two of its own addresses, and both look the same
    /// from here. Then nobody is dropped, rather than the wrong one.
    fn find(&self, ends: Ends) -> Option<CancellationToken> {
        let shard = self.shard(ends);
        let same = shard.get(&ends)?;
        let mut open = same.iter().filter(|(_, gone)| !gone.is_cancelled());
        let found = match (open.next(), open.next()) {
            (Some(_), Some(_)) => None,
            (Some(only), None) => Some(only),
            (None, _) => same.last(),
        };
        found.map(|(_, gone)| gone.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        let local = Addr::from(SocketAddr::from(([0, 0, 0, 0], 80)));
        let remote = Addr::from(SocketAddr::from(([192, 0, 2, 1], port)));
        Ends::of(&local, &remote).expect("both are internet addresses")
    }

    fn connections() -> &'static Connections {
        Box::leak(Box::default())
    }

    fn is_empty(connections: &Connections) -> bool {
        connections.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    #[test]
    fn a_connection_is_found_until_its_io_is_dropped() {
        let all = connections();
        let (one, two) = (
            Connection::open_within(all, ends(1)),
            Connection::open_within(all, ends(2)),
        );
        let (first, second) = (all.find(ends(1)).unwrap(), all.find(ends(2)).unwrap());
        one.hang_up();
        assert!(first.is_cancelled() && !second.is_cancelled());
        assert!(all.find(ends(1)).unwrap().is_cancelled(), "it is still there, and gone");
        drop(one);
        assert!(all.find(ends(1)).is_none());
        drop(two);
        assert!(second.is_cancelled(), "the drop of an IO is a hang-up");
        assert!(is_empty(all));
    }

    #[test]
    fn a_port_that_is_used_again_at_once_is_another_connection() {
        let all = connections();
        let old = Connection::open_within(all, ends(1));
        old.hang_up();
        let new = Connection::open_within(all, ends(1));
        let found = all.find(ends(1)).unwrap();
        assert!(!found.is_cancelled());
        drop(old);
        assert!(!found.is_cancelled() && !all.find(ends(1)).unwrap().is_cancelled());
        drop(new);
        assert!(found.is_cancelled() && is_empty(all));
    }

    #[test]
    fn of_two_that_look_the_same_none_is_found() {
        let all = connections();
        let one = Connection::open_within(all, ends(1));
        let two = Connection::open_within(all, ends(1));
        assert!(all.find(ends(1)).is_none());
        drop(one);
        assert!(all.find(ends(1)).is_some_and(|found| !found.is_cancelled()));
        drop(two);
        assert!(is_empty(all));
    }

    #[test]
    fn other_addresses_have_no_ends() {
        let socket = Addr::from(SocketAddr::from(([127, 0, 0, 1], 80)));
        assert_eq!(Ends::of(&socket, &Addr::custom("unix", "unnamed")), None);
        assert_eq!(Ends::of(&Addr::default(), &socket), None);
    }
}
