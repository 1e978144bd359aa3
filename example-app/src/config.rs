//! Settings from the environment.

use std::{env, fmt, net::IpAddr, time::Duration};

use resilience::{
    BreakerChoice, BuildError, Resilience,
    breaker::BreakerConfig,
    store::{ApiKeys, MemoryStore},
};

/// What the environment says.
pub(crate) struct Config {
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    /// `None` is the embedded store.
    pub(crate) redis_url: Option<String>,
    pub(crate) api_keys: ApiKeys,
    breakers: BreakerChoice,
}

/// The key that the embedded store knows, and its user.
pub(crate) const DEMO_KEY: &str = "letmein";
pub(crate) const DEMO_USER: &str = "user-42";

impl Config {
    pub(crate) fn from_env() -> Result<Self, Misuse> {
        let port = var("PORT")?.unwrap_or_else(|| "3000".into());
        let host = var("HOST")?.unwrap_or_else(|| "127.0.0.1".into());
        Ok(Self {
            host: host.parse().map_err(|_| Misuse::new("HOST", &host, "an IP address"))?,
            port: port.parse().map_err(|_| Misuse::new("PORT", &port, "a number up to 65535"))?,
            redis_url: var("REDIS_URL")?,
            api_keys: match var("API_KEYS")?.as_deref() {
                None | Some("sha256") => ApiKeys::sha256(),
                Some("plain") => ApiKeys::plain(),
                Some(other) => return Err(Misuse::new("API_KEYS", other, "`sha256` or `plain`")),
            },
            breakers: match var("BREAKERS")?.as_deref() {
                None | Some("shared") => BreakerChoice::Shared,
                Some("per_operation") => BreakerChoice::PerOperation,
                Some(other) => return Err(Misuse::new("BREAKERS", other, "`shared` or `per_operation`")),
            },
        })
    }

    /// The runtime that these settings ask for. Needs a tokio runtime around it.
    pub(crate) fn resilience(&self) -> Result<Resilience, BuildError> {
        let breaker = BreakerConfig::default()
            .with_failures_in_a_row(5)
            .with_open_for(Duration::from_secs(5));
        let builder = Resilience::builder().breaker(breaker).breakers(self.breakers);
        match &self.redis_url {
            Some(url) => builder.redis(url).api_keys(self.api_keys).build(),
            None => builder.store(MemoryStore::new().with_api_key(DEMO_KEY, DEMO_USER)).build(),
        }
    }
}

/// A variable; an empty one counts as unset.
fn var(name: &'static str) -> Result<Option<String>, Misuse> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(value)) => Err(Misuse::new(name, &value.to_string_lossy(), "UTF-8")),
    }
}

/// A variable whose value makes no sense.
#[derive(Debug)]
pub(crate) struct Misuse {
    name: &'static str,
    value: String,
    expected: &'static str,
}

impl Misuse {
    fn new(name: &'static str, value: &str, expected: &'static str) -> Self {
        Self {
            name,
            value: value.to_owned(),
            expected,
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, expected } = self;
        write!(f, "{name} is {value:?}, but must be {expected}")
    }
}

impl std::error::Error for Misuse {}
