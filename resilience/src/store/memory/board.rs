//! Breakers that the handles of one embedded store share: the runtimes of one process, at most.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use tokio::{sync::broadcast, time::Instant};

use crate::{
    clock::Clock,
    store::{
        BreakerBoard, StoreFuture,
        board::{At, Board, Entry, Leased, NewHold, Presence, Slate, Trip},
    },
};

/// Changes that a slow listener may be late by; it looks at everything anyway.
const CHANGES_KEPT: usize = 16;

/// The boards of all systems.
#[derive(Debug)]
pub(super) struct Boards {
    clock: Clock,
    /// What the store's clock showed, as time since 1970, when the monotonic one stood at zero.
    epoch: Duration,
    systems: Mutex<HashMap<String, System>>,
}

#[derive(Debug)]
struct System {
    slate: Slate,
    changes: broadcast::Sender<()>,
}

impl Default for System {
    fn default() -> Self {
        Self {
            slate: Slate::default(),
            changes: broadcast::Sender::new(CHANGES_KEPT),
        }
    }
}

impl Boards {
    pub(super) fn new(clock: Clock) -> Self {
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let epoch = today.unwrap_or_default().saturating_sub(clock.now());
        Self {
            clock,
            epoch,
            systems: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from((self.epoch + self.clock.now()).as_millis()).unwrap_or(u64::MAX)
    }

    fn on<T>(&self, system: &str, act: impl FnOnce(&mut Slate, u64) -> (T, bool)) -> T {
        let mut systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        let system = systems.entry(system.to_owned()).or_default();
        let (answer, changed) = act(&mut system.slate, self.now());
        if changed {
            // An error only says that nobody listens.
            _ = system.changes.send(());
        }
        answer
    }
}

// Decisions are taken when the future is polled, as they are by the other stores: not when it is made.
impl BreakerBoard for Boards {
    fn look<'a>(&'a self, system: &'a str, presence: Option<Presence<'a>>, _: Instant) -> StoreFuture<'a, Board> {
        async move { Ok(self.on(system, |slate, now| (slate.look(now, presence), false))) }.boxed()
    }

    fn trip<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, _: Instant) -> StoreFuture<'a, Entry> {
        async move { Ok(self.on(at.system, |slate, now| slate.trip(now, at, trip))) }.boxed()
    }

    fn close<'a>(
        &'a self,
        at: At<'a>,
        opening: Option<&'a str>,
        reason: &'a str,
        _: Instant,
    ) -> StoreFuture<'a, Entry> {
        async move { Ok(self.on(at.system, |slate, now| slate.close(now, at, opening, reason))) }.boxed()
    }

    fn reopen<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, _: Instant) -> StoreFuture<'a, Entry> {
        async move { Ok(self.on(at.system, |slate, now| slate.reopen(now, at, trip))) }.boxed()
    }

    fn lease<'a>(&'a self, at: At<'a>, opening: &'a str, ttl: Duration, _: Instant) -> StoreFuture<'a, Leased> {
        async move { Ok(self.on(at.system, |slate, now| (slate.lease(now, at, opening, ttl), false))) }.boxed()
    }

    fn yield_lease<'a>(&'a self, at: At<'a>, _: Instant) -> StoreFuture<'a, bool> {
        async move { Ok(self.on(at.system, |slate, now| slate.yield_lease(now, at))) }.boxed()
    }

    fn hold<'a>(
        &'a self,
        system: &'a str,
        name: &'a str,
        hold: Option<&'a NewHold>,
        _: Instant,
    ) -> StoreFuture<'a, bool> {
        async move { Ok(self.on(system, |slate, now| slate.hold(now, name, hold))) }.boxed()
    }

    fn changes<'a>(&'a self, system: &'a str, _: Instant) -> StoreFuture<'a, BoxStream<'static, ()>> {
        async move {
            let mut systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
            let changes = systems.entry(system.to_owned()).or_default().changes.subscribe();
            let changes = futures_util::stream::unfold(changes, |mut changes| async move {
                match changes.recv().await {
                    // Whoever was late looks once for all that it has missed.
                    Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Some(((), changes)),
                    Err(broadcast::error::RecvError::Closed) => None,
                }
            });
            Ok(changes.boxed())
        }
        .boxed()
    }
}
