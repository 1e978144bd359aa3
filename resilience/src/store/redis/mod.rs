//! A store that all instances of a service share.

mod backoff;
mod board;
mod builder;
mod classify;
mod connection;
mod connector;
mod dispatch;
mod io;
mod line;
mod link;
mod lockout;
mod mode;
mod pool;
mod reads;
mod script;
mod take;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use futures_util::FutureExt;
use redis::{Cmd, Value, cmd};
use tokio::time::{Instant, timeout_at};

pub use self::builder::{RedisStoreBuilder, RedisStoreError};
use self::{board::Boards, classify::is_wrong_type, connection::Connection, pool::Pool};
use super::{
    Attempt, Begun, BreakerBoard, KeyLayout, Lockout, LockoutStatus, Probe, Settlement, Store, StoreAdmin, StoreError,
    StoreErrorKind, StoreFuture, Take, Taken, Timing, check_api_key, flag_value,
};
use crate::store_breaker::Operation;

/// How long a change by an operator may take, connecting included.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in Redis (5 or later), shared by all instances of a service.
///
/// Every operation is one round trip on a connection that it shares with the others, and [`KeyLayout`] says where it
/// looks. A clone is another handle to the same store.
///
/// It never waits for Redis to come up, neither at the start nor later: while no connection serves, operations fail at
/// once, and connections come back in the background, without a restart and without traffic. Before Redis 6, a
/// connection that has died is noticed by the next operation only.
///
/// A Redis in cluster mode is refused, because the keys of one decision lie in different slots: operations fail as in an
/// outage, and the log says so at error level. Each new connection asks the server for its mode.
///
/// ```no_run
/// # async fn run() -> Result<(), resilience::store::RedisStoreError> {
/// use resilience::store::RedisStore;
///
/// let store = RedisStore::new("redis://127.0.0.1:6379")?;
/// let prefixed = RedisStore::builder("redis://127.0.0.1:6379").key_prefix("shop:").build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pool: Arc<Pool>,
    layout: KeyLayout,
    boards: Boards,
}

impl RedisStore {
    /// The Redis at `url`, with default settings. See [`RedisStoreBuilder::build`].
    ///
    /// # Errors
    ///
    /// For a URL that cannot be used, and outside of a tokio runtime. Never because Redis is unreachable.
    pub fn new(url: impl Into<String>) -> Result<Self, RedisStoreError> {
        Self::builder(url).build()
    }

    /// Settings to begin with: `redis://[user:password@]host[:port][/db]`, `rediss://…` or `unix:///path`.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// A store on a pool of the caller's own, which other code may use beside it.
    ///
    /// The same operations, within the limits of such a pool: connections that have died are noticed by its own check at
    /// checkout (leave `test_on_check_out` on, at the price of a round trip), attempts to connect do not back off, and an
    /// operation waits for a connection until the pool's `connection_timeout` or its own deadline. Changes of shared breakers
    /// are not pushed to it, since that takes a connection of its own: they are polled.
    ///
    /// The server's mode is not checked: do not lend a pool to a Redis in cluster mode, which is not supported. Operations
    /// that such a server refuses (`CROSSSLOT`, `MOVED`, `ASK`) are outages, but others succeed, so that quotas and lockouts
    /// do not hold.
    #[must_use]
    pub fn from_pool(pool: bb8::Pool<RedisConnectionManager>) -> Self {
        Self::on(Pool::Lent(pool), KeyLayout::new())
    }

    /// Looks under these names from now on.
    #[must_use]
    pub fn with_layout(mut self, layout: KeyLayout) -> Self {
        self.boards = Boards::new(Arc::clone(&self.pool), layout.clone());
        self.layout = layout;
        self
    }

    /// The names under which it keeps things: to look up one client's keys.
    #[must_use]
    pub const fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Connections that serve at present, as far as is known without asking.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.pool.connections()
    }

    /// Whether any connection serves at present, as far as is known without asking.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connections() > 0
    }

    fn on(pool: Pool, layout: KeyLayout) -> Self {
        let pool = Arc::new(pool);
        Self {
            boards: Boards::new(Arc::clone(&pool), layout.clone()),
            pool,
            layout,
        }
    }

    /// The value under a key; `None` if there is none.
    async fn read(&self, operation: Operation, key: String, deadline: Instant) -> Result<Option<Vec<u8>>, StoreError> {
        let mut connection = self.pool.checkout_for(operation, deadline).await?;
        match connection.read(key, deadline).await? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(connection.distrust("a text was due")),
        }
    }

    /// A command of an operator, who has no chain to keep the time and may come before the first connection does.
    async fn change(&self, command: Cmd) -> Result<Value, StoreError> {
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        let answer = timeout_at(deadline, async {
            let mut connection = self.pool.checkout_by(deadline).await?;
            Ok(connection.send(command, deadline).await?)
        });
        answer.await.unwrap_or_else(|_| {
            let message = format!("Redis has not answered within {ADMIN_TIMEOUT:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, message))
        })
    }
}

impl Store for RedisStore {
    fn identity<'a>(&'a self, api_key: &'a str, deadline: Instant) -> StoreFuture<'a, Option<String>> {
        async move {
            let key = self.layout.api_key(api_key);
            let user = self.read(Operation::Auth, key, deadline).await?;
            match user.map(String::from_utf8).transpose() {
                Err(_) => Err(odd("an API key's user is not UTF-8")),
                Ok(Some(user)) if user.is_empty() => Err(odd("an API key's user is empty")),
                Ok(user) => Ok(user),
            }
        }
        .boxed()
    }

    fn flag<'a>(&'a self, name: &'a str, deadline: Instant) -> StoreFuture<'a, Option<bool>> {
        async move {
            let key = self.layout.flag(name);
            match self.read(Operation::Flag, key, deadline).await {
                Ok(value) => value.map(flag_value).transpose(),
                Err(error) if is_wrong_type(&error) => Err(error.unreadable()),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn take<'a>(&'a self, takes: &'a [Take<'a>], deadline: Instant) -> StoreFuture<'a, Vec<Taken>> {
        async move {
            let mut connection = self.pool.checkout_for(Operation::RateLimit, deadline).await?;
            take::take(&mut connection, &self.layout, takes, deadline).await
        }
        .boxed()
    }

    fn begin_attempts<'a>(&'a self, attempts: &'a [Attempt<'a>], deadline: Instant) -> StoreFuture<'a, Vec<Begun>> {
        async move {
            let mut connection = self.pool.checkout_for(Operation::Lockout, deadline).await?;
            lockout::begin(&mut connection, &self.layout, attempts, deadline).await
        }
        .boxed()
    }

    fn settle_attempts<'a>(&'a self, settled: &'a [Settlement<'a>], deadline: Instant) -> StoreFuture<'a, ()> {
        async move {
            let mut connection = self.pool.checkout_for(Operation::Lockout, deadline).await?;
            lockout::settle(&mut connection, &self.layout, settled, deadline).await
        }
        .boxed()
    }

    fn lockout_status<'a>(
        &'a self,
        lockout: &'a Lockout,
        subject: &'a str,
        deadline: Instant,
    ) -> StoreFuture<'a, LockoutStatus> {
        async move {
            let mut connection = self.pool.checkout_by(deadline).await?;
            lockout::status(&mut connection, &self.layout, lockout, subject, deadline).await
        }
        .boxed()
    }

    fn unlock<'a>(&'a self, lockout: &'a Lockout, subject: &'a str, deadline: Instant) -> StoreFuture<'a, bool> {
        async move {
            let key = self.layout.tally(subject, &lockout.id);
            let mut connection = self.pool.checkout_by(deadline).await?;
            match connection.send(cmd("DEL").arg(key).take(), deadline).await? {
                Value::Int(removed) => Ok(removed == 1),
                _ => Err(connection.distrust("a number was due")),
            }
        }
        .boxed()
    }

    fn limits(&self, deadline: Instant) -> StoreFuture<'_, Vec<(String, String)>> {
        async move {
            let mut connection = self.pool.checkout_by(deadline).await?;
            let command = cmd("HGETALL").arg(self.layout.limits()).take();
            let reply = connection.send(command, deadline).await?;
            redis::from_redis_value::<Vec<(Vec<u8>, Vec<u8>)>>(reply)
                .map(|fields| {
                    fields
                        .into_iter()
                        .map(|(name, limit)| (lossy(name), lossy(limit)))
                        .collect()
                })
                .map_err(|_| connection.distrust("a hash was due"))
        }
        .boxed()
    }

    fn set_limit<'a>(&'a self, name: &'a str, limit: Option<&'a str>, deadline: Instant) -> StoreFuture<'a, ()> {
        async move {
            let key = self.layout.limits();
            let command = match limit {
                Some(limit) => cmd("HSET").arg(key).arg(name).arg(limit).take(),
                None => cmd("HDEL").arg(key).arg(name).take(),
            };
            let mut connection = self.pool.checkout_by(deadline).await?;
            match connection.send(command, deadline).await? {
                Value::Int(_) => Ok(()),
                _ => Err(connection.distrust("a number was due")),
            }
        }
        .boxed()
    }

    fn timing(&self) -> Timing {
        if self.pool.keeps_time() {
            Timing::ByStore
        } else {
            Timing::ByGuards
        }
    }

    fn has_line(&self) -> bool {
        self.pool.has_line()
    }

    fn board(&self) -> Option<&dyn BreakerBoard> {
        Some(&self.boards)
    }

    fn probe(&self, kind: Probe, deadline: Instant) -> StoreFuture<'_, ()> {
        async move {
            let mut connection = self.pool.checkout_by(deadline).await?;
            let key = self.layout.probe();
            match kind {
                Probe::Write => {
                    let write = cmd("SET").arg(key).arg(1).arg("PX").arg(10_000).take();
                    match connection.send(write, deadline).await? {
                        Value::Okay => Ok(()),
                        _ => Err(connection.distrust("an OK was due")),
                    }
                }
                Probe::Read => {
                    match connection.send(cmd("GET").arg(key).take(), deadline).await? {
                        Value::Nil | Value::BulkString(_) => {}
                        _ => return Err(connection.distrust("a text was due")),
                    }
                    is_primary(&mut connection, deadline).await
                }
            }
        }
        .boxed()
    }
}

impl StoreAdmin for RedisStore {
    fn add_api_key<'a>(&'a self, api_key: &'a str, user: &'a str) -> StoreFuture<'a, ()> {
        async move {
            check_api_key(api_key, user)?;
            let key = self.layout.api_key(api_key);
            self.change(cmd("SET").arg(key).arg(user).take()).await.map(drop)
        }
        .boxed()
    }

    fn remove_api_key<'a>(&'a self, api_key: &'a str) -> StoreFuture<'a, bool> {
        async move {
            let key = self.layout.api_key(api_key);
            let removed = self.change(cmd("DEL").arg(key).take()).await?;
            Ok(removed == Value::Int(1))
        }
        .boxed()
    }

    fn set_flag<'a>(&'a self, name: &'a str, on: bool) -> StoreFuture<'a, ()> {
        async move {
            let key = self.layout.flag(name);
            self.change(cmd("SET").arg(key).arg(u8::from(on)).take())
                .await
                .map(drop)
        }
        .boxed()
    }

    fn clear_flag<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        async move {
            let key = self.layout.flag(name);
            let removed = self.change(cmd("DEL").arg(key).take()).await?;
            Ok(removed == Value::Int(1))
        }
        .boxed()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("layout", &self.layout)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// Whether this server takes writes. One that may not be asked is taken at its word: it has just answered a read.
async fn is_primary(connection: &mut Connection, deadline: Instant) -> Result<(), StoreError> {
    let role = match connection.send(cmd("ROLE"), deadline).await.map_err(StoreError::from) {
        Err(error) if error.kind() == StoreErrorKind::Answered => return Ok(()),
        role => role?,
    };
    let is_primary = matches!(&role, Value::Array(parts) if matches!(
        parts.first(), Some(Value::BulkString(name)) if name == b"master"
    ));
    if is_primary {
        return Ok(());
    }
    connection.abandon();
    Err(StoreError::new(StoreErrorKind::Unavailable, "this Redis is no primary"))
}

/// For text that whoever reads it will refuse if it is not what it should be.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn odd(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Answered, format!("Redis answered, but {what}"))
}
