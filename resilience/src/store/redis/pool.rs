//! Where operations get their connections.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bb8::{QueueStrategy, RunError};
use bb8_redis::RedisConnectionManager;
use futures_util::FutureExt;
use redis::Client;
use tokio::time::{Instant, timeout_at};

use crate::{
    store::{StoreError, StoreErrorKind},
    store_breaker::Operation,
};

use super::{
    classify::store_error, connection::Connection, connector::Connector, dispatch::Dispatch, io::IoThread, link::Link,
};

/// A pool that hands out clones: the connection itself is back in the pool before its first command is written, so that
/// a few connections carry any number of operations and none waits for another's reply.
#[derive(Debug)]
pub(super) enum Pool {
    Own(Own),
    Lent(bb8::Pool<RedisConnectionManager>),
}

#[derive(Debug)]
pub(super) struct Own {
    shared: Arc<Shared>,
    dispatch: Arc<Dispatch>,
    listener: Box<Client>,
    /// Where connections are opened and served. Ends with this.
    io: IoThread,
}

#[derive(Debug)]
struct Shared {
    pool: bb8::Pool<Connector>,
    link: Arc<Link>,
    /// The pooled connection that was handed out last, to be shared for as long as it lives: a checkout takes several
    /// locks and a timer, and would find this very one again.
    last: RwLock<Option<Connection>>,
}

/// Sizes and times of a pool of our own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSettings {
    pub(super) size: u32,
    pub(super) checkout_timeout: Duration,
    /// Commands of guards that are on their way at once, at most.
    pub(super) in_flight: usize,
    /// Commands of each kind of guard that wait for that, at most.
    pub(super) line: usize,
}

impl Pool {
    /// Starts to connect in the background, on a thread of its own, and keeps connecting for as long as the pool lives.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub(super) fn open(connector: Connector, link: Arc<Link>, settings: PoolSettings) -> std::io::Result<Self> {
        let io = IoThread::start()?;
        let listener = connector.listener();
        // bb8 spawns its tasks where it is called.
        let inside = io.handle().enter();
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
        tokio::spawn(keep_swept(pool.clone(), Arc::clone(&link)));
        let dispatch = Arc::new(Dispatch::new(settings.in_flight, settings.line));
        tokio::spawn(Arc::clone(&dispatch).watch());
        drop(inside);
        Ok(Self::Own(Own {
            dispatch,
            shared: Arc::new(Shared {
                pool,
                link,
                last: RwLock::default(),
            }),
            listener: Box::new(listener),
            io,
        }))
    }

    /// Whether an operation on this pool ends by its deadline, and counts it from sending to reply.
    pub(super) const fn keeps_time(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Connections that serve, as far as is known.
    pub(super) fn connections(&self) -> u32 {
        match self {
            Self::Own(own) => own.shared.link.live(),
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

    /// A connection for a guard's operation, which takes its turn with the others.
    pub(super) async fn checkout_for(&self, operation: Operation, deadline: Instant) -> Result<Connection, StoreError> {
        let connection = self.checkout(deadline).await?;
        Ok(match self {
            Self::Own(own) => connection.for_operation(&own.dispatch, operation),
            Self::Lent(_) => connection,
        })
    }

    /// Whether operations wait for their turn.
    pub(super) fn has_line(&self) -> bool {
        match self {
            Self::Own(own) => own.dispatch.has_line(),
            Self::Lent(_) => false,
        }
    }

    async fn checkout(&self, deadline: Instant) -> Result<Connection, StoreError> {
        match self {
            Self::Own(own) => own.checkout(deadline).await,
            Self::Lent(pool) => match pool.get().await {
                Ok(connection) => Ok(Connection::lent(connection.clone())),
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
            own.shared.link.skip_wait();
        }
        self.checkout(deadline).await
    }
}

impl Own {
    async fn checkout(&self, deadline: Instant) -> Result<Connection, StoreError> {
        let shared = &self.shared;
        if let Some(connection) = shared.last_if_alive() {
            return Ok(connection);
        }
        if shared.link.is_lost() {
            return Err(shared.link.unavailable());
        }
        // There, since bb8 opens connections where it is asked for them.
        let checkout = self.io.handle().spawn({
            let shared = Arc::clone(shared);
            async move {
                let checkout = timeout_at(deadline, shared.checkout(deadline)).await;
                checkout.unwrap_or_else(|_| Err(shared.link.unavailable()))
            }
        });
        // An error is the end of the thread, which has been dropped with the pool.
        checkout.await.unwrap_or_else(|_| Err(shared.link.unavailable()))
    }
}

impl Shared {
    async fn checkout(&self, deadline: Instant) -> Result<Connection, StoreError> {
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
/// is always handed out first, never. Ends with the thread it runs on.
async fn keep_swept(pool: bb8::Pool<Connector>, link: Arc<Link>) {
    loop {
        link.loss().await;
        sweep(&pool);
        // A loss meanwhile is not forgotten, only swept later: a server that greets and then hangs up would be stormed
        // otherwise, since each greeting ends the back-off.
        tokio::time::sleep(BETWEEN_SWEEPS).await;
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
