//! Settings of a runtime, validated when it is built.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use poem::http::{HeaderName, HeaderValue};
use tokio::runtime::Handle;

use crate::{
    body::ErrorBody,
    breaker::{BreakerConfig, ConfigError},
    client::{Callers, InvalidNetwork, Network, ProxyHeader},
    guard::auth::Authenticator,
    policy::BreakerChoice,
    runtime::{RateLimitHeaders, Resilience, Runtime, Settings},
    store::{ApiKeys, MemoryStore, RedisStore, RedisStoreError, Store},
    store_breaker::StoreBreakers,
};

/// Builds a [`Resilience`].
///
/// | option | default |
/// |---|---|
/// | [`redis`](Self::redis), [`memory`](Self::memory) or [`store`](Self::store) | none: one must be named |
/// | [`breaker`](Self::breaker) | opens after 5 failures in a row, for 5 s |
/// | [`breakers`](Self::breakers) | one, shared by all operations |
/// | [`api_keys`](Self::api_keys) | [`ApiKeys::sha256`] |
/// | [`key_prefix`](Self::key_prefix) | none |
/// | [`auth_header`](Self::auth_header) | `x-api-key` |
/// | [`authenticator`](Self::authenticator) | the API-key look-up |
/// | [`auth_deadline`](Self::auth_deadline) | 150 ms |
/// | [`flag_deadline`](Self::flag_deadline) | 100 ms |
/// | [`rate_limit_deadline`](Self::rate_limit_deadline) | 80 ms |
/// | [`retry_after`](Self::retry_after) | 30 s |
/// | [`trusted_proxies`](Self::trusted_proxies) | none: the connection's peer is the client |
/// | [`trust_unix_sockets`](Self::trust_unix_sockets) | no |
/// | [`proxy_header`](Self::proxy_header) | `X-Forwarded-For` |
/// | [`exempt`](Self::exempt) | nobody |
/// | [`ipv6_prefix`](Self::ipv6_prefix) | 64 bits |
/// | [`local_capacity`](Self::local_capacity) | 100,000 clients |
/// | [`rate_limit_headers`](Self::rate_limit_headers) | both families |
/// | [`error_body`](Self::error_body) | negotiated |
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    store: Option<Source>,
    api_keys: Option<ApiKeys>,
    key_prefix: Option<String>,
    breaker: BreakerConfig,
    breakers: BreakerChoice,
    auth_header: String,
    authenticator: Option<Arc<dyn Authenticator>>,
    auth_deadline: Duration,
    flag_deadline: Duration,
    rate_limit_deadline: Duration,
    retry_after: Duration,
    trusted_proxies: Result<Vec<Network>, InvalidNetwork>,
    trust_unix_sockets: bool,
    proxy_header: ProxyHeader,
    exempt: Result<Vec<Network>, InvalidNetwork>,
    ipv6_prefix: u8,
    local_capacity: usize,
    rate_limit_headers: RateLimitHeaders,
    error_body: ErrorBody,
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
            breaker: BreakerConfig::default(),
            breakers: BreakerChoice::Shared,
            auth_header: "x-api-key".into(),
            authenticator: None,
            auth_deadline: Duration::from_millis(150),
            flag_deadline: Duration::from_millis(100),
            rate_limit_deadline: Duration::from_millis(80),
            retry_after: Duration::from_secs(30),
            trusted_proxies: Ok(Vec::new()),
            trust_unix_sockets: false,
            proxy_header: ProxyHeader::default(),
            exempt: Ok(Vec::new()),
            ipv6_prefix: 64,
            local_capacity: MemoryStore::DEFAULT_CAPACITY,
            rate_limit_headers: RateLimitHeaders::default(),
            error_body: ErrorBody::default(),
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

    /// The header that carries the API key, for policies that do not name one.
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        self.auth_header = name.into();
        self
    }

    /// Verifies callers by this instead of the API-key look-up.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// How long authentication may take, for policies that do not say.
    pub fn auth_deadline(mut self, deadline: Duration) -> Self {
        self.auth_deadline = deadline;
        self
    }

    /// How long reading a flag may take, for policies that do not say.
    pub fn flag_deadline(mut self, deadline: Duration) -> Self {
        self.flag_deadline = deadline;
        self
    }

    /// How long taking quotas may take, for policies that do not say.
    pub fn rate_limit_deadline(mut self, deadline: Duration) -> Self {
        self.rate_limit_deadline = deadline;
        self
    }

    /// The `Retry-After` of answers that an outage decided.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// The networks of the proxies in front of this service, as text in CIDR notation or as `ipnet::IpNet`; a bare
    /// address is the network of that one. A second call replaces the first.
    ///
    /// If the connection's peer lies in one of them, quotas by `ip` count the client that is named in the
    /// [`proxy_header`](Self::proxy_header): the first address from the right that is not trusted itself. What stands to
    /// the left of it is the client's own word, and is not read. If the peer is not trusted, neither is the header.
    ///
    /// - All hops are trusted: the farthest is the client.
    /// - A hop says nothing of use (`unknown`, `_hidden`, malformed, an element longer than 512 bytes), or the client is
    ///   not among the last 32 elements: all requests of that kind count as those of the last proxy that was read.
    ///
    /// Name the proxies, not the whole private network: whoever is in a trusted network may claim any address. A network
    /// of length 0 is refused for that reason.
    ///
    /// ```
    /// # use resilience::Resilience;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), resilience::BuildError> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .trusted_proxies(["10.0.7.0/24", "2001:db8:7::/64"])
    ///     .exempt(["198.51.100.20"])
    ///     .build()?;
    /// # drop(resilience);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trusted_proxies<N>(mut self, networks: impl IntoIterator<Item = N>) -> Self
    where
        N: TryInto<Network, Error: Into<InvalidNetwork>>,
    {
        self.trusted_proxies =
            collected(networks).and_then(
                |networks| match networks.iter().find(|network| network.is_everybody()) {
                    Some(network) => Err(InvalidNetwork::everybody(*network)),
                    None => Ok(networks),
                },
            );
        self
    }

    /// Whether a peer at the other end of a unix socket is a trusted proxy. If not, and also if the header then names
    /// nobody, all such requests share one bucket, that of clients without an address.
    pub fn trust_unix_sockets(mut self, trust: bool) -> Self {
        self.trust_unix_sockets = trust;
        self
    }

    /// The header that the trusted proxies maintain. Never both: a proxy that appends to one passes the other on as the
    /// client sent it, and that would be the client's own choice of an address.
    pub fn proxy_header(mut self, header: ProxyHeader) -> Self {
        self.proxy_header = header;
        self
    }

    /// Clients that no quota by `ip` counts, such as health checks and your own crawlers; networks are written as for
    /// [`trusted_proxies`](Self::trusted_proxies). All other quotas count them. A second call replaces the first.
    ///
    /// It goes by the client's address. Who hides behind an exempt proxy is not exempt.
    pub fn exempt<N>(mut self, networks: impl IntoIterator<Item = N>) -> Self
    where
        N: TryInto<Network, Error: Into<InvalidNetwork>>,
    {
        self.exempt = collected(networks);
        self
    }

    /// How many bits of an IPv6 address tell clients apart, from 1 to 128. A household has a /64 at least.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// How many clients the quotas that fail local can tell apart in this process.
    pub fn local_capacity(mut self, clients: usize) -> Self {
        self.local_capacity = clients;
        self
    }

    /// Which rate limit headers answers carry.
    pub fn rate_limit_headers(mut self, families: RateLimitHeaders) -> Self {
        self.rate_limit_headers = families;
        self
    }

    /// In which format refusals are written.
    pub fn error_body(mut self, body: ErrorBody) -> Self {
        self.error_body = body;
        self
    }

    /// Builds the runtime. Waits for nothing: Redis may be down.
    ///
    /// # Errors
    ///
    /// When no store is named, an option is out of range, the URL is malformed, or no tokio runtime is around.
    pub fn build(self) -> Result<Resilience, BuildError> {
        Handle::try_current().map_err(|_| BuildError::NoTokioRuntime)?;
        self.breaker.validate()?;
        let settings = self.settings()?;
        let challenge = match &self.authenticator {
            None => HeaderValue::from_static("ApiKey"),
            Some(authenticator) => HeaderValue::from_str(authenticator.challenge())
                .map_err(|_| invalid("authenticator", "its challenge is not a header value"))?,
        };
        if self.local_capacity == 0 {
            return Err(invalid("local_capacity", "must be at least 1"));
        }
        let store = self.open_store()?;
        let breakers = StoreBreakers::new(self.breaker, Arc::clone(&store));
        let insurance = MemoryStore::builder().capacity(self.local_capacity).build();
        Ok(Resilience::new(Runtime::new(
            settings,
            store,
            self.authenticator,
            challenge,
            breakers,
            insurance,
        )))
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        for (option, deadline) in [
            ("auth_deadline", self.auth_deadline),
            ("flag_deadline", self.flag_deadline),
            ("rate_limit_deadline", self.rate_limit_deadline),
        ] {
            if !(Duration::from_millis(1)..=DEADLINE_MAX).contains(&deadline) {
                return Err(invalid(option, "must be from 1 ms to 1 h"));
            }
        }
        if self.retry_after.is_zero() {
            return Err(invalid("retry_after", "must not be zero"));
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            return Err(invalid("ipv6_prefix", "must be from 1 to 128 bits"));
        }
        match self.breakers {
            BreakerChoice::Named("") => return Err(invalid("breakers", "a breaker's name must not be empty")),
            // As in the attribute: under these names the other choices know breakers with probes of their own.
            BreakerChoice::Named("store" | "auth" | "flag" | "rate_limit") => {
                return Err(invalid(
                    "breakers",
                    "has a name that a shared or a per-operation breaker has already",
                ));
            }
            _ => {}
        }
        let networks = |option, networks: &Result<Vec<Network>, InvalidNetwork>| {
            let networks = networks.clone();
            networks.map_err(|error| BuildError::Network { option, error })
        };
        let callers = Callers {
            trusted_proxies: networks("trusted_proxies", &self.trusted_proxies)?,
            trust_unix_sockets: self.trust_unix_sockets,
            proxy_header: self.proxy_header,
            exempt: networks("exempt", &self.exempt)?,
            ipv6_prefix: self.ipv6_prefix,
        };
        let auth_header = HeaderName::from_bytes(self.auth_header.as_bytes())
            .map_err(|_| invalid("auth_header", "is not the name of a header"))?;
        Ok(Settings {
            breakers: self.breakers,
            auth_header,
            auth_deadline: self.auth_deadline,
            flag_deadline: self.flag_deadline,
            rate_limit_deadline: self.rate_limit_deadline,
            retry_after: self.retry_after,
            callers,
            rate_limit_headers: self.rate_limit_headers,
            error_body: self.error_body,
        })
    }

    fn open_store(&self) -> Result<Arc<dyn Store>, BuildError> {
        match &self.store {
            None => Err(BuildError::NoStore),
            Some(Source::Redis(url)) => {
                // Within what the store takes: an open time beyond that is no mistake of its own.
                let reconnect_cap = self
                    .breaker
                    .open_for()
                    .clamp(*RECONNECT_CAP.start(), *RECONNECT_CAP.end());
                let mut redis = RedisStore::builder(url).reconnect_cap(reconnect_cap);
                if let Some(api_keys) = self.api_keys {
                    redis = redis.api_keys(api_keys);
                }
                if let Some(prefix) = &self.key_prefix {
                    redis = redis.key_prefix(prefix);
                }
                Ok(Arc::new(redis.build()?))
            }
            Some(Source::Store(store)) => {
                if self.api_keys.is_some() {
                    return Err(invalid(
                        "api_keys",
                        "belongs to `redis(url)`: set it on the store itself",
                    ));
                }
                if self.key_prefix.is_some() {
                    return Err(invalid(
                        "key_prefix",
                        "belongs to `redis(url)`: set it on the store itself",
                    ));
                }
                Ok(Arc::clone(store))
            }
        }
    }
}

/// Longest deadline of a guard. What takes longer is no guard.
const DEADLINE_MAX: Duration = Duration::from_secs(60 * 60);

/// What a Redis store takes for the longest wait between two attempts to connect.
const RECONNECT_CAP: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60 * 60);

fn collected<N>(networks: impl IntoIterator<Item = N>) -> Result<Vec<Network>, InvalidNetwork>
where
    N: TryInto<Network, Error: Into<InvalidNetwork>>,
{
    let networks = networks.into_iter();
    networks.map(|network| network.try_into().map_err(Into::into)).collect()
}

fn invalid(option: &'static str, reason: &'static str) -> BuildError {
    BuildError::Invalid { option, reason }
}

/// Why a [`Resilience`] was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The builder was given no store.
    #[error("no store: call `redis(url)`, `memory()` or `store(…)`")]
    NoStore,
    /// An option is out of its range.
    #[error("option `{option}` {reason}")]
    Invalid {
        /// The builder's method.
        option: &'static str,
        /// What is wrong with its value.
        reason: &'static str,
    },
    /// An option that takes networks was given something else.
    #[error("option `{option}`: {error}")]
    Network {
        /// The builder's method.
        option: &'static str,
        /// Which one, and why.
        error: InvalidNetwork,
    },
    /// A breaker setting is out of its range.
    #[error("option `breaker`: {0}")]
    Breaker(#[from] ConfigError),
    /// The Redis store cannot be set up: a malformed URL, most often.
    #[error("option `redis`: {0}")]
    Redis(#[from] RedisStoreError),
    /// Building needs a tokio runtime around it.
    #[error("no tokio runtime: build inside one, e.g. under `#[tokio::main]`")]
    NoTokioRuntime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_valid_open_time_does_for_redis() {
        for open_for in [Duration::from_micros(1), Duration::from_secs(7 * 24 * 60 * 60)] {
            let breaker = BreakerConfig::default().with_open_for(open_for);
            let built = Resilience::builder()
                .redis("redis://127.0.0.1:1")
                .breaker(breaker)
                .build();
            assert!(built.is_ok(), "{open_for:?}: {built:?}");
        }
    }

    #[tokio::test]
    async fn a_breakers_own_name_is_nobody_elses() {
        for name in ["", "store", "auth", "flag", "rate_limit"] {
            let built = Resilience::builder()
                .memory()
                .breakers(BreakerChoice::Named(name))
                .build();
            let error = built.expect_err(name).to_string();
            assert!(error.starts_with("option `breakers` "), "{error}");
        }
        let own = Resilience::builder().memory().breakers(BreakerChoice::Named("own"));
        assert!(own.build().is_ok());
    }
}
