//! How to reach Redis, and what to call things there.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Client, ConnectionAddr};
use tokio::runtime::Handle;

use crate::store::{ApiKeys, InvalidKeySecret, InvalidPrefix, KeyLayout, KeySecret};

use super::{
    RedisStore,
    connector::Connector,
    link::Link,
    pool::{Pool, PoolSettings},
};

/// Settings of a [`RedisStore`].
///
/// Its `Debug` shows no part of the URL, which may hold a password.
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    api_keys: ApiKeys,
    key_prefix: String,
    key_secret: Option<Result<KeySecret, InvalidKeySecret>>,
    pool_size: u32,
    connect_timeout: Duration,
    checkout_timeout: Duration,
    reconnect_cap: Duration,
    max_in_flight: usize,
    max_waiting: usize,
}

/// Settings that cannot work, whatever the state of Redis is.
///
/// No message holds any part of the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisStoreError {
    /// The URL does not say how to reach a Redis.
    #[error(
        "the Redis URL cannot be used: {0} (expected redis://[user:password@]host[:port][/db], rediss://… or unix:///path)"
    )]
    Url(String),
    /// The URL asks for TLS, which this build does not have.
    #[error("the Redis URL asks for TLS: enable the `tls` feature of `resilience`")]
    TlsDisabled,
    /// An option has a value that makes no sense.
    #[error("`{option}` {problem}")]
    Option {
        /// The builder's method.
        option: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// The store connects in the background, and there is no tokio runtime to do so.
    #[error("a RedisStore must be built inside a tokio runtime")]
    NoRuntime,
    /// The system has refused the thread on which connections are served.
    #[error("no thread for the connections to Redis: {0}")]
    Thread(#[from] std::io::Error),
}

impl RedisStoreBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            api_keys: ApiKeys::default(),
            key_prefix: String::new(),
            key_secret: None,
            pool_size: 2,
            connect_timeout: Duration::from_millis(250),
            checkout_timeout: Duration::from_millis(50),
            reconnect_cap: Duration::from_secs(5),
            max_in_flight: 256,
            max_waiting: 1_024,
        }
    }

    /// How API keys are kept; [`ApiKeys::sha256`] by default.
    #[must_use]
    pub fn api_keys(mut self, api_keys: ApiKeys) -> Self {
        self.api_keys = api_keys;
        self
    }

    /// What stands before every key, its separator included; nothing by default. See [`KeyLayout::with_prefix`].
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Hides clients in the names of keys, by this secret of at least 16 bytes; none by default. See
    /// [`KeyLayout::with_key_secret`]. If it changes, all counts and locks start anew.
    #[must_use]
    pub fn key_secret(self, secret: impl AsRef<[u8]>) -> Self {
        self.keyed(KeySecret::new(secret.as_ref()))
    }

    pub(crate) fn keyed(mut self, secret: Result<KeySecret, InvalidKeySecret>) -> Self {
        self.key_secret = Some(secret);
        self
    }

    /// Connections, from 1 to 256; 2 by default. Each carries any number of operations at once, so that more of them
    /// help only where one core cannot keep up with a connection's traffic.
    #[must_use]
    pub fn pool_size(mut self, connections: u32) -> Self {
        self.pool_size = connections;
        self
    }

    /// How long an attempt to connect may take, name resolution and handshake included; 250 ms by default, at most 60 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an operation may wait for a connection while none is free or the first is being made; 50 ms by default,
    /// at most 60 s. Within the operation's deadline, which goes on while it waits.
    #[must_use]
    pub fn checkout_timeout(mut self, timeout: Duration) -> Self {
        self.checkout_timeout = timeout;
        self
    }

    /// The longest wait between two attempts to connect while Redis is down; 5 s by default, at most an hour. Waits start
    /// at 100 ms and double.
    #[must_use]
    pub fn reconnect_cap(mut self, cap: Duration) -> Self {
        self.reconnect_cap = cap;
        self
    }

    /// Operations of guards that are on their way to Redis at once, at most: from 1 to 65,536; 256 by default. Further ones
    /// wait in this process, and kinds of guards take turns: a flood of logins does not hold up authentication. Callers
    /// whose API key was verified within the last hour are served first. An operation that has waited as long as its
    /// deadline is dropped, and its request is refused with 503 `overloaded`.
    ///
    /// With a round trip of 1 ms, 256 at once are 256,000 a second.
    #[must_use]
    pub fn max_in_flight(mut self, operations: usize) -> Self {
        self.max_in_flight = operations;
        self
    }

    /// Operations of each kind of guard that wait for their turn, at most: up to 1,000,000; 1,024 by default. A full line
    /// refuses the newcomer, or a caller that has presented a wrong credential for one that has not.
    #[must_use]
    pub fn max_waiting(mut self, operations: usize) -> Self {
        self.max_waiting = operations;
        self
    }

    /// The store. Does not wait for Redis: it connects in the background, and goes on trying while Redis is down.
    ///
    /// # Errors
    ///
    /// For a URL or an option that cannot work, and outside of a tokio runtime. Never because Redis is unreachable: that
    /// is a warning in the log.
    pub fn build(self) -> Result<RedisStore, RedisStoreError> {
        let client = self.client()?;
        let layout = self.layout()?;
        let settings = self.pool_settings()?;
        bounded("connect_timeout", self.connect_timeout, Duration::from_secs(60))?;
        bounded("reconnect_cap", self.reconnect_cap, Duration::from_secs(60 * 60))?;
        if Handle::try_current().is_err() {
            return Err(RedisStoreError::NoRuntime);
        }

        let address = client.get_connection_info().addr().to_string();
        let link = Arc::new(Link::new(address, self.reconnect_cap));
        let connector = Connector::new(&client, self.connect_timeout, Arc::clone(&link)).map_err(url_error)?;
        let pool = Pool::open(connector, link, settings)?;
        Ok(RedisStore::on(pool, layout))
    }

    fn client(&self) -> Result<Client, RedisStoreError> {
        let asks_for_tls = ["rediss:", "valkeys:"]
            .iter()
            .any(|scheme| self.url.starts_with(scheme));
        if asks_for_tls && cfg!(not(feature = "tls")) {
            return Err(RedisStoreError::TlsDisabled);
        }
        let client = Client::open(self.url.as_str()).map_err(url_error)?;
        match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => choose_crypto(),
            ConnectionAddr::Unix(path) if path.as_os_str().is_empty() => {
                return Err(RedisStoreError::Url("the path of the socket is missing".to_owned()));
            }
            _ => {}
        }
        Ok(client)
    }

    fn layout(&self) -> Result<KeyLayout, RedisStoreError> {
        let secret = self.key_secret.clone().transpose();
        let secret = secret.map_err(|InvalidKeySecret(bytes)| RedisStoreError::Option {
            option: "key_secret",
            problem: format!("has {bytes} bytes; write at least 16"),
        })?;
        KeyLayout::new()
            .with_api_keys(self.api_keys)
            .keyed(secret)
            .with_prefix(self.key_prefix.as_str())
            .map_err(|InvalidPrefix(problem)| RedisStoreError::Option {
                option: "key_prefix",
                problem: problem.to_owned(),
            })
    }

    fn pool_settings(&self) -> Result<PoolSettings, RedisStoreError> {
        if !(1..=256).contains(&self.pool_size) {
            return Err(RedisStoreError::Option {
                option: "pool_size",
                problem: format!("is {}; from 1 to 256 connections make sense", self.pool_size),
            });
        }
        if !(1..=65_536).contains(&self.max_in_flight) {
            return Err(RedisStoreError::Option {
                option: "max_in_flight",
                problem: format!("is {}; from 1 to 65536 operations make sense", self.max_in_flight),
            });
        }
        if self.max_waiting > 1_000_000 {
            return Err(RedisStoreError::Option {
                option: "max_waiting",
                problem: format!("is {}; up to 1000000 operations make sense", self.max_waiting),
            });
        }
        Ok(PoolSettings {
            size: self.pool_size,
            in_flight: self.max_in_flight,
            line: self.max_waiting,
            checkout_timeout: bounded("checkout_timeout", self.checkout_timeout, Duration::from_secs(60))?,
        })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("api_keys", &self.api_keys)
            .field("key_prefix", &self.key_prefix)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("checkout_timeout", &self.checkout_timeout)
            .field("reconnect_cap", &self.reconnect_cap)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_waiting", &self.max_waiting)
            .finish_non_exhaustive()
    }
}

fn bounded(option: &'static str, value: Duration, most: Duration) -> Result<Duration, RedisStoreError> {
    if (Duration::from_millis(1)..=most).contains(&value) {
        return Ok(value);
    }
    Err(RedisStoreError::Option {
        option,
        problem: format!("is {value:?}; from 1 ms to {most:?} make sense"),
    })
}

/// What redis-rs says of a URL names its parts, and never quotes them.
fn url_error(error: redis::RedisError) -> RedisStoreError {
    RedisStoreError::Url(error.to_string())
}

/// rustls panics in a process that has several crypto providers and has chosen none.
fn choose_crypto() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that somebody else has chosen meanwhile.
        _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "tls")]
    use crate::store::{Probe, Store, StoreErrorKind};

    use super::*;

    fn problem(builder: RedisStoreBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[tokio::test]
    async fn urls_that_cannot_be_used_are_refused_without_being_quoted() {
        for url in [
            "",
            "hunter2",
            "hunter2:6379",
            "http://hunter2@localhost",
            "redis://",
            "redis://:hunter2@",
            "redis://:hunter2/@localhost",
            "redis://localhost/hunter2",
            "redis://localhost:hunter2",
            "redis://user:hunter2@0.0.0.0",
            "unix:",
        ] {
            let problem = problem(RedisStore::builder(url));
            assert!(
                problem.starts_with("the Redis URL cannot be used: "),
                "{url}: {problem}"
            );
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[tokio::test]
    async fn tls_names_the_feature_that_it_needs() {
        assert!(problem(RedisStore::builder("rediss://localhost")).contains("`tls` feature"));
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn tls_that_fails_is_an_outage_like_all_others() {
        // Speaks no TLS, and says so.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://{}", listener.local_addr().unwrap());
        let store = RedisStore::new(url).unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                _ = tokio::io::AsyncWriteExt::write_all(&mut connection, b"-ERR speak plainly\r\n").await;
            }
        });
        let soon = tokio::time::Instant::now() + Duration::from_secs(20);
        let error = store.probe(Probe::Write, soon).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(std::error::Error::source(&error).is_some(), "{error}");
    }

    #[tokio::test]
    async fn options_that_make_no_sense_are_named() {
        let builder = || RedisStore::builder("redis://localhost");
        let cases = [
            (builder().pool_size(0), "`pool_size` is 0"),
            (builder().pool_size(257), "`pool_size` is 257"),
            (builder().connect_timeout(Duration::ZERO), "`connect_timeout` is 0ns"),
            (
                builder().connect_timeout(Duration::from_secs(61)),
                "`connect_timeout` is 61s",
            ),
            (builder().checkout_timeout(Duration::ZERO), "`checkout_timeout` is 0ns"),
            (
                builder().reconnect_cap(Duration::from_micros(1)),
                "`reconnect_cap` is 1µs",
            ),
            (builder().key_prefix("a b"), "`key_prefix` has"),
            (
                builder().key_secret("hunter2"),
                "`key_secret` has 7 bytes; write at least 16",
            ),
        ];
        for (builder, expected) in cases {
            let problem = problem(builder);
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn outside_of_a_runtime_it_is_an_error() {
        let error = RedisStore::new("redis://localhost").unwrap_err();
        assert!(matches!(error, RedisStoreError::NoRuntime));
    }

    #[tokio::test]
    async fn debug_shows_no_password() {
        let builder = RedisStore::builder("redis://user:hunter2@127.0.0.1:1").key_secret("hunter2 hunter2 hunter2");
        assert!(!format!("{builder:?}").contains("hunter2"));
        let store = builder.build().unwrap();
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}
