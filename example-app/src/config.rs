//! Settings from the environment.

use std::{
    env, fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use poem::Request;
use resilience::{
    BreakerChoice, BuildError, Resilience,
    breaker::BreakerConfig,
    client::Network,
    concurrency::Priority,
    store::{ApiKeys, MemoryStore, RedisStore},
};

/// What the environment says.
pub(crate) struct Config {
    /// Where to listen.
    pub(crate) address: SocketAddr,
    /// `None` is the embedded store. It may hold a password: never printed.
    redis_url: Option<String>,
    api_keys: ApiKeys,
    breakers: BreakerChoice,
    trusted_proxies: Vec<Network>,
    limits_file: Option<String>,
    /// Where the payments service is; `None` asks for a stub of it.
    pub(crate) payments_url: Option<String>,
}

/// The key that the embedded store knows, and its user.
pub(crate) const DEMO_KEY: &str = "letmein";
pub(crate) const DEMO_USER: &str = "user-42";

impl Config {
    pub(crate) fn from_env() -> Result<Self, Misuse> {
        let host = var("HOST")?.unwrap_or_else(|| "127.0.0.1".into());
        let port = var("PORT")?.unwrap_or_else(|| "3000".into());
        let ip: IpAddr = host
            .parse()
            .map_err(|_| Misuse::value("HOST", &host, "an IP address"))?;
        let port = port
            .parse()
            .map_err(|_| Misuse::value("PORT", &port, "a number up to 65535"))?;
        Ok(Self {
            address: SocketAddr::new(ip, port),
            redis_url: var("REDIS_URL")?,
            api_keys: match var("API_KEYS")?.as_deref() {
                None | Some("sha256") => ApiKeys::sha256(),
                Some("plain") => ApiKeys::plain(),
                Some(other) => return Err(Misuse::value("API_KEYS", other, "`sha256` or `plain`")),
            },
            breakers: match var("BREAKERS")?.as_deref() {
                None | Some("shared") => BreakerChoice::Shared,
                Some("per_operation") => BreakerChoice::PerOperation,
                Some(other) => return Err(Misuse::value("BREAKERS", other, "`shared` or `per_operation`")),
            },
            limits_file: var("LIMITS_FILE")?,
            payments_url: match var("PAYMENTS_URL")? {
                Some(url) if !url.starts_with("http://") => {
                    return Err(Misuse::of("PAYMENTS_URL", "not an `http://` URL"));
                }
                url => url,
            },
            trusted_proxies: match var("TRUSTED_PROXIES")? {
                None => Vec::new(),
                Some(list) => list
                    .split(',')
                    .map(|network| network.trim().parse())
                    .collect::<Result<_, _>>()
                    .map_err(|error| Misuse::of("TRUSTED_PROXIES", error))?,
            },
        })
    }

    /// Whether the embedded store serves.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.redis_url.is_none()
    }

    /// The runtime that these settings ask for. Needs a tokio runtime around it.
    pub(crate) fn resilience(&self) -> Result<Resilience, Misuse> {
        let breaker = BreakerConfig::default()
            .with_failures_in_a_row(5)
            .with_open_for(Duration::from_secs(5));
        let mut builder = Resilience::builder()
            .breaker(breaker)
            .breakers(self.breakers)
            .priority(asked_priority)
            .trusted_proxies(self.trusted_proxies.iter().copied());
        if let Some(path) = &self.limits_file {
            builder = builder.limits_file(path);
        }
        let built = match &self.redis_url {
            Some(url) => builder.redis(url).api_keys(self.api_keys).build(),
            None => builder
                .store(MemoryStore::new().with_api_key(DEMO_KEY, DEMO_USER))
                .build(),
        };
        built.map_err(|error| match error {
            BuildError::Redis(error) => Misuse::of("REDIS_URL", error),
            BuildError::LimitsFile(error) => Misuse::of("LIMITS_FILE", error),
            BuildError::Network { error, .. } => Misuse::of("TRUSTED_PROXIES", error),
            error => Misuse::of("the environment", error),
        })
    }

    /// The store in Redis, for an operator to change. Needs a tokio runtime around it.
    pub(crate) fn redis(&self) -> Result<RedisStore, Misuse> {
        let Some(url) = &self.redis_url else {
            return Err(Misuse::of(
                "REDIS_URL",
                "not set, and the embedded store lives only inside its service",
            ));
        };
        let store = RedisStore::builder(url).api_keys(self.api_keys).build();
        store.map_err(|error| Misuse::of("REDIS_URL", error))
    }
}

/// What the header `x-priority` asks for. In a demonstration anybody may; a service goes by who is calling.
fn asked_priority(request: &Request, own: Priority) -> Priority {
    let asked = request.header("x-priority").and_then(|word| word.parse().ok());
    asked.unwrap_or(own)
}

/// A variable; an empty one counts as unset.
fn var(name: &'static str) -> Result<Option<String>, Misuse> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Misuse::of(name, "not UTF-8")),
    }
}

/// A variable whose value makes no sense.
#[derive(Debug)]
pub(crate) struct Misuse {
    name: &'static str,
    problem: String,
}

impl Misuse {
    fn of(name: &'static str, problem: impl fmt::Display) -> Self {
        let problem = problem.to_string();
        Self { name, problem }
    }

    /// For variables that hold no secret: quotes the value.
    fn value(name: &'static str, value: &str, expected: &str) -> Self {
        Self::of(name, format_args!("{value:?} is not {expected}"))
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.problem)
    }
}

impl std::error::Error for Misuse {}
