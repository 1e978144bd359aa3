//! Settings from the environment.

use std::{
    env, fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use poem::Request;
use resilience::{
    BreakerChoice, BuildError, Dependencies, Resilience,
    breaker::BreakerConfig,
    client::Network,
    concurrency::Priority,
    sharing::{
        SharedBreakers, Sharing,
        admin::{BearerToken, BreakerAdmin},
    },
    store::{ApiKeys, KeyLayout, MemoryStore, RedisStore, RedisStoreError},
};

use crate::payments;

/// What the environment says.
pub(crate) struct Config {
    /// Where to listen.
    pub(crate) address: SocketAddr,
    /// `None` is the embedded store. It may hold a password: never printed.
    redis_url: Option<String>,
    api_keys: ApiKeys,
    /// Hides clients in the names of keys; never printed.
    key_secret: Option<String>,
    breakers: BreakerChoice,
    trusted_proxies: Vec<Network>,
    /// The system whose breakers this one shares.
    system: Option<String>,
    /// What operators send; never printed.
    admin_token: Option<String>,
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
            key_secret: var("KEY_SECRET")?,
            breakers: match var("BREAKERS")?.as_deref() {
                None | Some("shared") => BreakerChoice::Shared,
                Some("per_operation") => BreakerChoice::PerOperation,
                Some(other) => return Err(Misuse::value("BREAKERS", other, "`shared` or `per_operation`")),
            },
            system: match var("SHARE_BREAKERS")? {
                Some(_) if var("REDIS_URL")?.is_none() => {
                    return Err(Misuse::of(
                        "SHARE_BREAKERS",
                        "needs a REDIS_URL: instances share them through Redis",
                    ));
                }
                system => system,
            },
            admin_token: match var("ADMIN_TOKEN")? {
                Some(_) if var("SHARE_BREAKERS")?.is_none() => {
                    return Err(Misuse::of(
                        "ADMIN_TOKEN",
                        "needs SHARE_BREAKERS: there is nothing else to order",
                    ));
                }
                token => token,
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
        if let Some(system) = &self.system {
            builder = builder
                .dependencies(shared_dependencies()?)
                .share_breakers(Sharing::system(system.as_str()).with_any());
        }
        let built = match &self.redis_url {
            Some(url) => {
                let mut builder = builder.redis(url).api_keys(self.api_keys);
                if let Some(secret) = &self.key_secret {
                    builder = builder.key_secret(secret);
                }
                builder.build()
            }
            None => builder
                .store(MemoryStore::new().with_api_key(DEMO_KEY, DEMO_USER))
                .build(),
        };
        built.map_err(|error| match error {
            BuildError::Redis(error) => redis_misuse(error),
            BuildError::LimitsFile(error) => Misuse::of("LIMITS_FILE", error),
            BuildError::Network { error, .. } => Misuse::of("TRUSTED_PROXIES", error),
            error @ BuildError::Invalid {
                option: "share_breakers",
                ..
            } => Misuse::of("SHARE_BREAKERS", error),
            error => Misuse::of("the environment", error),
        })
    }

    /// The breakers that instances share, for an operator to look at and to hold. Needs a tokio runtime around it.
    pub(crate) fn shared_breakers(&self) -> Result<SharedBreakers, Misuse> {
        let Some(system) = &self.system else {
            return Err(Misuse::of(
                "SHARE_BREAKERS",
                "not set: it names the system whose breakers these are",
            ));
        };
        SharedBreakers::over(self.redis()?, system.as_str()).map_err(|error| Misuse::of("SHARE_BREAKERS", error))
    }

    /// The routes at `/admin/breakers`, if a token says who may use them.
    pub(crate) fn breaker_admin(&self, resilience: &Resilience) -> Result<Option<BreakerAdmin>, Misuse> {
        let (Some(token), Some(breakers)) = (&self.admin_token, resilience.shared_breakers()) else {
            return Ok(None);
        };
        let token = BearerToken::new("admin", token).map_err(|error| Misuse::of("ADMIN_TOKEN", error))?;
        Ok(Some(BreakerAdmin::new(breakers, token)))
    }

    /// The store in Redis, for an operator to change. Needs a tokio runtime around it.
    pub(crate) fn redis(&self) -> Result<RedisStore, Misuse> {
        let Some(url) = &self.redis_url else {
            return Err(Misuse::of(
                "REDIS_URL",
                "not set, and the embedded store lives only inside its service",
            ));
        };
        let mut builder = RedisStore::builder(url).api_keys(self.api_keys);
        if let Some(secret) = &self.key_secret {
            builder = builder.key_secret(secret);
        }
        builder.build().map_err(redis_misuse)
    }

    /// The names of keys in Redis, without a connection to it.
    pub(crate) fn layout(&self) -> Result<KeyLayout, Misuse> {
        let layout = KeyLayout::new().with_api_keys(self.api_keys);
        match &self.key_secret {
            None => Ok(layout),
            Some(secret) => layout
                .with_key_secret(secret)
                .map_err(|error| Misuse::of("KEY_SECRET", error)),
        }
    }
}

/// Names the variable that an error of the store's settings comes from.
fn redis_misuse(error: RedisStoreError) -> Misuse {
    let name = match &error {
        RedisStoreError::Option {
            option: "key_secret", ..
        } => "KEY_SECRET",
        _ => "REDIS_URL",
    };
    Misuse::of(name, error)
}

/// What the service calls, with settings for the demonstration by hand: a probe that was killed is missed for two seconds.
fn shared_dependencies() -> Result<Dependencies, Misuse> {
    let dependencies = Dependencies::new();
    let config = BreakerConfig::default()
        .with_open_for(Duration::from_secs(5))
        .with_probe_lease(Duration::from_secs(2));
    let configured = dependencies.configure(payments::NAME, config);
    configured.map_err(|error| Misuse::of("SHARE_BREAKERS", error))?;
    Ok(dependencies)
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
