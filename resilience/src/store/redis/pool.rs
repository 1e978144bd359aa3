//! Where operations get their connections.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bb8::{QueueStrategy, RunError};
use bb8_redis::RedisConnectionManager;
use futures_util::FutureExt;
use redis::Client;
use tokio::{task::AbortHandle, time::Instant};

use crate::store::{StoreError, StoreErrorKind};

use super::{classify::store_error, connection::Connection, connector::Connector, link::Link};

/// A pool that hands out clones: the connection itself is back in the pool before its first command is written, so that
/// a few connections carry any number of operations and none waits for another's reply.
#[derive(Debug)]
pub(super) enum Pool {
    Own(Own),
    Lent(bb8::Pool<RedisConnectionManager>),
}

#[derive(Debug)]
pub(super) struct Own {
    pool: bb8::Pool<Connector>,
    link: Arc<Link>,
    listener: Box<Client>,
    /// The pooled connection that was handed out last, to be shared for as long as it lives: a checkout takes several
    /// locks and a timer, and would find this very one again.
    last: RwLock<Option<Connection>>,
    _sweeper: Sweeper,
}

/// Sizes and times of a pool of our own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSettings {
    pub(super) size: u32,
    pub(super) checkout_timeout: Duration,
}

impl Pool {
    /// Starts to connect in the background, and keeps connecting for as long as the pool lives. Needs a tokio runtime.
    pub(super) fn open(connector: Connector, link: Arc<Link>, settings: PoolSettings) -> Self {
        let listener = connector.listener();
        let pool = bb8::Pool::builder()
            .max_size(settings.size)
            .min_idle(settings.size)
            .queue_strategy(QueueStrategy::Lifo)
            .connection_timeout(settings.checkout_timeout)
            // The back-off is the connector's: bb8's own would let callers wait.
            .retry_connection(false)
            .idle_timeout(None)
            // The reaper brings the pool back to `min_idle` when there is no traffic to do so, but runs only for a pool
            // whose connections age.
            .max_lifetime(Duration::MAX)
            .reaper_rate(Duration::from_millis(500))
            .build_unchecked(connector);
        let sweeper = Sweeper::watch(pool.clone(), Arc::clone(&link));
        Self::Own(Own {
            pool,
            link,
            listener: Box::new(listener),
            last: RwLock::default(),
            _sweeper: sweeper,
        })
    }

    /// Connections that serve, as far as is known.
    pub(super) fn connections(&self) -> u32 {
        match self {
            Self::Own(own) => own.link.live(),
            Self::Lent(pool) => pool.state().connections,
        }
    }

    /// How to open a connection that listens; not known of a pool that is not ours.
    pub(super) fn listener(&self) -> Option<&Client> {
        match self {
            Self::Own(own) => Some(&own.listener),
            Self::Lent(_) => None,
        }
    }

    /// A connection for one operation.
    pub(super) async fn checkout(&self, deadline: Instant) -> Result<Connection, StoreError> {
        match self {
            Self::Own(own) => own.checkout(deadline).await,
            Self::Lent(pool) => match pool.get().await {
                Ok(connection) => Ok(Connection::lent(connection.clone(), deadline)),
                Err(RunError::User(error)) => Err(store_error(error)),
                Err(RunError::TimedOut) if pool.state().connections == 0 => Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "the pool has no connection to Redis",
                )),
                Err(RunError::TimedOut) => Err(saturated()),
            },
        }
    }

    /// A connection for somebody who has until `deadline`: tries to connect at once, whatever the back-off says.
    pub(super) async fn checkout_by(&self, deadline: Instant) -> Result<Connection, StoreError> {
        if let Self::Own(own) = self {
            own.link.skip_wait();
        }
        self.checkout(deadline).await
    }
}

impl Own {
    async fn checkout(&self, deadline: Instant) -> Result<Connection, StoreError> {
        if let Some(connection) = self.last_if_alive() {
            return Ok(connection);
        }
        loop {
            if self.link.is_lost() {
                return Err(self.link.unavailable());
            }
            let checkout = tokio::select! {
                biased;
                checkout = self.pool.get() => checkout,
                // bb8 tells nobody of a failed attempt: without this, each operation of an outage would wait its full time.
                () = self.link.lost() => return Err(self.link.unavailable()),
            };
            return match checkout {
                Ok(connection) => {
                    let connection = connection.clone();
                    *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
                    Ok(connection)
                }
                Err(RunError::User(error)) => Err(store_error(error)),
                Err(RunError::TimedOut) if self.link.live() > 0 => Err(saturated()),
                // The first connection is on its way, and has not failed: it is worth all the time there is.
                Err(RunError::TimedOut) if !self.link.is_lost() && Instant::now() < deadline => continue,
                Err(RunError::TimedOut) => Err(self.link.unavailable()),
            };
        }
    }

    fn last_if_alive(&self) -> Option<Connection> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|connection| !connection.is_dead()).cloned()
    }
}

fn saturated() -> StoreError {
    StoreError::new(StoreErrorKind::Saturated, "no connection of the pool was free in time")
}

/// The first loss is swept at once, and the next no sooner than this.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(100);

/// Takes dead connections out of a pool when they die. bb8 would meet them at a checkout only, and under a live one, which
/// is always handed out first, never.
#[derive(Debug)]
struct Sweeper(AbortHandle);

impl Sweeper {
    fn watch(pool: bb8::Pool<Connector>, link: Arc<Link>) -> Self {
        let task = tokio::spawn(async move {
            loop {
                link.loss().await;
                sweep(&pool);
                // A loss meanwhile is not forgotten, only swept later: a server that greets and then hangs up would be
                // stormed otherwise, since each greeting ends the back-off.
                tokio::time::sleep(BETWEEN_SWEEPS).await;
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Checks every idle connection out at once: bb8 drops the dead ones and replaces them, the others go back.
fn sweep(pool: &bb8::Pool<Connector>) {
    let mut living = Vec::new();
    // A checkout that has to wait finds no idle connection any more.
    while let Some(Ok(connection)) = pool.get().now_or_never() {
        living.push(connection);
    }
}
