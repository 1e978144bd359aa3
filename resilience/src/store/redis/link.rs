//! What a pool's connections and operations know of the way to the server.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::RedisError;
use tokio::{sync::Notify, time::Instant};

use crate::store::{StoreError, StoreErrorKind};

use super::{
    backoff::{Backoff, FIRST_WAIT},
    classify::caused_by,
    mode::CLUSTER,
};

/// How often an outage is worth a line in the log.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// Shared by the connector, which reports here, and the operations, which ask here before they wait for a connection.
#[derive(Debug)]
pub(super) struct Link {
    address: String,
    live: AtomicU32,
    attempts: Mutex<Attempts>,
    attempt_failed: Notify,
    died: Notify,
}

#[derive(Debug)]
struct Attempts {
    backoff: Backoff,
    last_error: Option<RedisError>,
    warned: Option<Instant>,
    /// When the back-off was last skipped.
    skipped: Option<Instant>,
    /// Whether this outage's error about a cluster is in the log.
    told_of_cluster: bool,
}

impl Link {
    pub(super) fn new(address: String, reconnect_cap: Duration) -> Self {
        Self {
            address,
            live: AtomicU32::new(0),
            attempts: Mutex::new(Attempts {
                backoff: Backoff::new(reconnect_cap),
                last_error: None,
                warned: None,
                skipped: None,
                told_of_cluster: false,
            }),
            attempt_failed: Notify::new(),
            died: Notify::new(),
        }
    }

    /// Connections that serve.
    pub(super) fn live(&self) -> u32 {
        self.live.load(Ordering::Acquire)
    }

    /// Whether no connection serves and it is too early to try for one: an operation need not wait then.
    pub(super) fn is_lost(&self) -> bool {
        self.live() == 0 && self.held_back().is_some()
    }

    /// Completes when [`is_lost`](Self::is_lost) holds.
    pub(super) async fn lost(&self) {
        loop {
            // Made before the look, so that a failure in between is not missed.
            let failed = self.attempt_failed.notified();
            if self.is_lost() {
                return;
            }
            failed.await;
        }
    }

    /// The last attempt's error, while it is too early for the next.
    pub(super) fn held_back(&self) -> Option<RedisError> {
        let attempts = self.attempts();
        let held = attempts.backoff.holds(Instant::now());
        attempts.last_error.clone().filter(|_| held)
    }

    /// Lets the next attempt through at once, but not more often than the back-off's own first wait: whoever asks for the
    /// service's health all the time must not have it connect all the time.
    pub(super) fn skip_wait(&self) {
        let now = Instant::now();
        let mut attempts = self.attempts();
        if attempts.skipped.is_none_or(|skipped| now - skipped >= FIRST_WAIT) {
            attempts.skipped = Some(now);
            attempts.backoff.skip();
        }
    }

    /// Completes when a connection has died since the last time.
    pub(super) async fn loss(&self) {
        self.died.notified().await;
    }

    pub(super) fn connection_serves(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
        let mut attempts = self.attempts();
        attempts.backoff.succeeded();
        attempts.last_error = None;
        attempts.told_of_cluster = false;
        if attempts.warned.take().is_some() {
            tracing::info!(address = %self.address, "connected to Redis again");
        }
    }

    pub(super) fn connection_died(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.died.notify_one();
    }

    pub(super) fn attempt_failed(&self, error: &RedisError) {
        let now = Instant::now();
        let mut attempts = self.attempts();
        attempts.backoff.failed(now, fastrand::f64());
        attempts.last_error = Some(error.clone());
        if attempts.warned.is_none_or(|warned| now - warned >= WARN_EVERY) {
            attempts.warned = Some(now);
            tracing::warn!(address = %self.address, %error, "cannot connect to Redis; trying again in the background");
        }
        drop(attempts);
        self.attempt_failed.notify_waiters();
    }

    /// Logs once per outage that the server is a cluster: waiting does not help, unlike for other failed attempts.
    pub(super) fn refused_cluster(&self) {
        if !std::mem::replace(&mut self.attempts().told_of_cluster, true) {
            tracing::error!(address = %self.address, "cannot use this Redis: {CLUSTER}");
        }
    }

    /// What an operation says that found no connection.
    pub(super) fn unavailable(&self) -> StoreError {
        let Some(cause) = self.attempts().last_error.clone() else {
            return StoreError::new(StoreErrorKind::Unavailable, format!("no connection to {self} yet"));
        };
        let message = format!("no connection to {self}: {cause}");
        caused_by(StoreError::new(StoreErrorKind::Unavailable, message), cause)
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}", self.address)
    }
}
