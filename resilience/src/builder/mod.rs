//! Settings of a runtime, validated when it is built.

mod build;
mod callers;
mod concurrency;
mod deadlines;
mod error;
mod limits;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

pub(crate) use self::build::invalid;
pub use self::error::{BuildError, LimitsFileError};
use crate::{
    body::ErrorBody,
    breaker::BreakerConfig,
    client::{ExemptIf, InvalidNetwork, Network, ProxyHeader},
    dependency::Dependencies,
    guard::{auth::Authenticator, concurrency::PriorityOf, lockout::BodyBounds},
    policy::{BreakerChoice, Limit},
    runtime::RateLimitHeaders,
    sharing::Sharing,
    store::{ApiKeys, InvalidKeySecret, KeySecret, MemoryStore, Store},
};

/// Builds a [`Resilience`](crate::Resilience).
///
/// | option | default |
/// |---|---|
/// | [`redis`](Self::redis), [`memory`](Self::memory) or [`store`](Self::store) | none: one must be named |
/// | [`breaker`](Self::breaker) | opens after 5 failures in a row, for 5 s |
/// | [`breakers`](Self::breakers) | one, shared by all operations |
/// | [`api_keys`](Self::api_keys) | [`ApiKeys::sha256`] |
/// | [`key_prefix`](Self::key_prefix) | none |
/// | [`key_secret`](Self::key_secret) | none: addresses stay readable in the names of keys |
/// | [`auth_header`](Self::auth_header) | `x-api-key` |
/// | [`authenticator`](Self::authenticator) | the API-key look-up |
/// | [`auth_deadline`](Self::auth_deadline) | 150 ms |
/// | [`flag_deadline`](Self::flag_deadline) | 100 ms |
/// | [`rate_limit_deadline`](Self::rate_limit_deadline) | 80 ms |
/// | [`lockout_deadline`](Self::lockout_deadline) | 100 ms |
/// | [`deadline_header`](Self::deadline_header) | none: no caller shortens a deadline |
/// | [`priority`](Self::priority) | the handler's own |
/// | [`send_timeout`](Self::send_timeout) | 30 s |
/// | [`login_body_limit`](Self::login_body_limit) | 64 KiB |
/// | [`login_body_timeout`](Self::login_body_timeout) | 5 s |
/// | [`retry_after`](Self::retry_after) | 30 s |
/// | [`trusted_proxies`](Self::trusted_proxies) | none: the connection's peer is the client |
/// | [`trust_unix_sockets`](Self::trust_unix_sockets) | no |
/// | [`proxy_header`](Self::proxy_header) | `X-Forwarded-For` |
/// | [`exempt`](Self::exempt), [`exempt_if`](Self::exempt_if) | nobody |
/// | [`ipv6_prefix`](Self::ipv6_prefix) | 64 bits |
/// | [`local_capacity`](Self::local_capacity) | 100,000 clients |
/// | [`remember_blocked`](Self::remember_blocked) | 10,000 refusals |
/// | [`limit`](Self::limit), [`limits_file`](Self::limits_file) | no quota by name |
/// | [`late_limits`](Self::late_limits) | no: a quota by name needs a definition |
/// | [`rate_limit_headers`](Self::rate_limit_headers) | both families |
/// | [`error_body`](Self::error_body) | negotiated |
/// | [`dependencies`](Self::dependencies) | [`Dependencies::global`] |
/// | [`share_breakers`](Self::share_breakers) | no: each instance's breakers learn by themselves |
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    store: Option<Source>,
    api_keys: Option<ApiKeys>,
    key_prefix: Option<String>,
    key_secret: Option<Result<KeySecret, InvalidKeySecret>>,
    breaker: BreakerConfig,
    breakers: BreakerChoice,
    auth_header: Option<String>,
    authenticator: Option<Arc<dyn Authenticator>>,
    auth_deadline: Duration,
    flag_deadline: Duration,
    rate_limit_deadline: Duration,
    lockout_deadline: Duration,
    deadline_header: Option<deadlines::HeaderSettings>,
    priority: PriorityOf,
    send_timeout: Duration,
    login_body: BodyBounds,
    retry_after: Duration,
    trusted_proxies: Result<Vec<Network>, InvalidNetwork>,
    trust_unix_sockets: bool,
    proxy_header: ProxyHeader,
    exempt: Result<Vec<Network>, InvalidNetwork>,
    exempt_if: ExemptIf,
    ipv6_prefix: u8,
    local_capacity: usize,
    remember_blocked: usize,
    limits: Vec<(String, Limit)>,
    limits_file: Option<PathBuf>,
    late_limits: bool,
    rate_limit_headers: RateLimitHeaders,
    error_body: ErrorBody,
    dependencies: Option<Dependencies>,
    sharing: Option<Sharing>,
}

enum Source {
    /// A URL: it may hold a password, so it is never printed.
    Redis(String),
    Store(Arc<dyn Store>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(_url) => f.write_str("Redis(…)"),
            Self::Store(store) => store.fmt(f),
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: None,
            api_keys: None,
            key_prefix: None,
            key_secret: None,
            breaker: BreakerConfig::default(),
            breakers: BreakerChoice::Shared,
            auth_header: None,
            authenticator: None,
            auth_deadline: Duration::from_millis(150),
            flag_deadline: Duration::from_millis(100),
            rate_limit_deadline: Duration::from_millis(80),
            lockout_deadline: Duration::from_millis(100),
            deadline_header: None,
            priority: PriorityOf::default(),
            send_timeout: Duration::from_secs(30),
            login_body: BodyBounds {
                limit: 64 * 1024,
                timeout: Duration::from_secs(5),
            },
            retry_after: Duration::from_secs(30),
            trusted_proxies: Ok(Vec::new()),
            trust_unix_sockets: false,
            proxy_header: ProxyHeader::default(),
            exempt: Ok(Vec::new()),
            exempt_if: ExemptIf::default(),
            ipv6_prefix: 64,
            local_capacity: MemoryStore::DEFAULT_CAPACITY,
            remember_blocked: 10_000,
            limits: Vec::new(),
            limits_file: None,
            late_limits: false,
            rate_limit_headers: RateLimitHeaders::default(),
            error_body: ErrorBody::default(),
            dependencies: None,
            sharing: None,
        }
    }
}

impl Builder {
    /// Keeps keys, flags and counters in the Redis at this URL: `redis://`, `rediss://` (feature `tls`) or `unix://`.
    pub fn redis(mut self, url: impl Into<String>) -> Self {
        self.store = Some(Source::Redis(url.into()));
        self
    }

    /// Keeps them in this process: for development, tests, and services of one instance.
    ///
    /// It begins with no API key, so that every handler with `auth` answers 401; hand a [`MemoryStore`] that knows some to
    /// [`store`](Self::store) instead.
    pub fn memory(self) -> Self {
        self.store(MemoryStore::new())
    }

    /// Keeps them in a store of your making or configuration.
    ///
    /// A [`RedisStore`](crate::store::RedisStore) that you build yourself keeps its own `reconnect_cap`: set it to the breaker's `open_for`, as
    /// [`redis`](Self::redis) does.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Like [`store`](Self::store), for one that you go on using yourself.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(Source::Store(store));
        self
    }

    /// How the breakers in front of the store behave.
    pub fn breaker(mut self, config: BreakerConfig) -> Self {
        self.breaker = config;
        self
    }

    /// Whether operations share a breaker, for policies that do not say.
    pub fn breakers(mut self, breakers: BreakerChoice) -> Self {
        self.breakers = breakers;
        self
    }

    /// How API keys are looked up in [`redis`](Self::redis).
    pub fn api_keys(mut self, api_keys: ApiKeys) -> Self {
        self.api_keys = Some(api_keys);
        self
    }

    /// Begins the name of every key in [`redis`](Self::redis), so that services can share one.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// Hides clients, addresses included, in the names of keys in [`redis`](Self::redis), by this secret of at least 16
    /// bytes; none by default. All instances need the same one. If it changes, all counts and locks start anew. See
    /// [`KeyLayout::with_key_secret`](crate::store::KeyLayout::with_key_secret).
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.key_secret = Some(KeySecret::new(secret.as_ref()));
        self
    }

    /// The header that carries the API key, for policies that do not name one.
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        self.auth_header = Some(name.into());
        self
    }

    /// Verifies callers by this instead of the API-key look-up.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// How many bytes of a body are read to find the account that a `lockout` counts; a longer one is refused with 413.
    /// At least 1. The body is kept in memory while the request lasts.
    pub fn login_body_limit(mut self, bytes: usize) -> Self {
        self.login_body.limit = bytes;
        self
    }

    /// How long that body may take to arrive; a slower one is refused with 408.
    pub fn login_body_timeout(mut self, timeout: Duration) -> Self {
        self.login_body.timeout = timeout;
        self
    }

    /// The `Retry-After` of answers that an outage decided.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// How many clients the quotas that fail local can tell apart in this process.
    pub fn local_capacity(mut self, clients: usize) -> Self {
        self.local_capacity = clients;
        self
    }

    /// How many refusals are remembered in this process: of quotas, and as many again of lockouts; 0 remembers none.
    ///
    /// A client that the store has refused is refused for the rest of the wait that it was told without asking the store
    /// again, whether the store is up or not: a flood costs it nothing. Each takes less than 500 bytes unless the handler's
    /// path is very long, so that 10,000 of them take 5 MB; what finds no room is asked for once more. Refusals by the counts of
    /// this process in an outage are not remembered.
    ///
    /// A lock is remembered for at most one second, since an operator may unlock its subject from another process.
    ///
    /// Whoever clears a client's count in the store by hand waits for what is remembered of it.
    pub fn remember_blocked(mut self, refusals: usize) -> Self {
        self.remember_blocked = refusals;
        self
    }

    /// Which rate limit headers answers carry.
    pub fn rate_limit_headers(mut self, families: RateLimitHeaders) -> Self {
        self.rate_limit_headers = families;
        self
    }

    /// Gives the app a registry of its own for what its `#[outbound]` fns call, so that two apps in one process share no
    /// breakers. It holds for all that handlers await; tasks of their own open its
    /// [`scope`](crate::Dependencies::scope) themselves.
    pub fn dependencies(mut self, dependencies: Dependencies) -> Self {
        self.dependencies = Some(dependencies);
        self
    }

    /// Lets the breakers of [`dependencies`](Self::dependencies) know what those of the other instances know: see the module
    /// [`sharing`](crate::sharing). Takes a system's name, or a [`Sharing`] with settings.
    ///
    /// ```
    /// use resilience::{Resilience, sharing::Sharing};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let resilience = Resilience::builder()
    ///     .redis("redis://127.0.0.1:6379")
    ///     .share_breakers(Sharing::system("payments-team").with_quorum(3))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn share_breakers(mut self, sharing: impl Into<Sharing>) -> Self {
        self.sharing = Some(sharing.into());
        self
    }

    /// In which format refusals are written.
    pub fn error_body(mut self, body: ErrorBody) -> Self {
        self.error_body = body;
        self
    }
}
