//! From settings to a runtime: every option is checked here, and nowhere later.

use std::{fs, ops::RangeInclusive, sync::Arc, time::Duration};

use poem::http::{HeaderName, HeaderValue};
use tokio::runtime::Handle;

use super::{BuildError, Builder, LimitsFileError, Source};
use crate::{
    client::{Callers, InvalidNetwork, Network},
    dependency::Dependencies,
    limits::{self, LimitsFile, NamedLimits, document},
    policy::{BreakerChoice, InvalidLimit},
    registry,
    runtime::{Resilience, Runtime, Settings},
    sharing::Core,
    store::{MemoryStore, RedisStore, Store},
    store_breaker::StoreBreakers,
};

impl Builder {
    /// Builds the runtime. Waits for nothing: Redis may be down.
    ///
    /// # Errors
    ///
    /// When no store is named, an option is out of range, the URL is malformed, a quota or a file of quotas is invalid, a
    /// handler uses a quota that has no definition (unless [`late_limits`](Self::late_limits) is called), or no tokio
    /// runtime is around.
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
        let limits = self.named_limits()?;
        if !self.late_limits {
            let policies: Vec<_> = registry::policies().collect();
            let undefined = limits::undefined(&policies, &limits);
            if !undefined.is_empty() {
                return Err(BuildError::UndefinedLimits(undefined));
            }
        }
        let sharing = self.sharing_over(&store)?;
        let breakers = StoreBreakers::new(self.breaker, Arc::clone(&store));
        let insurance = MemoryStore::builder().capacity(self.local_capacity).build();
        if let Some(core) = &sharing {
            let dependencies = self.dependencies.as_ref().unwrap_or_else(|| Dependencies::global());
            if !dependencies.share(core) {
                return Err(invalid(
                    "share_breakers",
                    "finds breakers that another runtime shares already: give each its own `dependencies`",
                ));
            }
        }
        let runtime = Runtime::new(
            settings,
            store,
            self.authenticator,
            challenge,
            breakers,
            insurance,
            limits,
        );
        Ok(Resilience::new(
            runtime.with_dependencies(self.dependencies).with_sharing(sharing),
        ))
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        for (option, deadline) in [
            ("auth_deadline", self.auth_deadline),
            ("flag_deadline", self.flag_deadline),
            ("rate_limit_deadline", self.rate_limit_deadline),
            ("lockout_deadline", self.lockout_deadline),
            ("login_body_timeout", self.login_body.timeout),
            ("send_timeout", self.send_timeout),
        ] {
            if !(Duration::from_millis(1)..=DEADLINE_MAX).contains(&deadline) {
                return Err(invalid(option, "must be from 1 ms to 1 h"));
            }
        }
        if self.retry_after.is_zero() {
            return Err(invalid("retry_after", "must not be zero"));
        }
        if self.login_body.limit == 0 {
            return Err(invalid("login_body_limit", "must be at least 1"));
        }
        if self.remember_blocked > REMEMBER_BLOCKED_MAX {
            return Err(invalid("remember_blocked", "must be at most 10,000,000"));
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            return Err(invalid("ipv6_prefix", "must be from 1 to 128 bits"));
        }
        match self.breakers {
            BreakerChoice::Named("") => return Err(invalid("breakers", "a breaker's name must not be empty")),
            // As in the attribute: under these names the other choices know breakers with probes of their own.
            BreakerChoice::Named("store" | "auth" | "flag" | "rate_limit" | "lockout") => {
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
            exempt_if: self.exempt_if.clone(),
            ipv6_prefix: self.ipv6_prefix,
        };
        if self.auth_header.is_some() && self.authenticator.is_some() {
            return Err(invalid(
                "auth_header",
                "is not read by an `authenticator`: set one of the two",
            ));
        }
        let auth_header = self.auth_header.as_deref().unwrap_or("x-api-key");
        let auth_header = HeaderName::from_bytes(auth_header.as_bytes())
            .map_err(|_| invalid("auth_header", "is not the name of a header"))?;
        Ok(Settings {
            breakers: self.breakers,
            auth_header,
            auth_deadline: self.auth_deadline,
            flag_deadline: self.flag_deadline,
            rate_limit_deadline: self.rate_limit_deadline,
            lockout_deadline: self.lockout_deadline,
            deadline_header: self.checked_deadline_header()?,
            priority: self.priority.clone(),
            send_timeout: self.send_timeout,
            login_body: self.login_body,
            retry_after: self.retry_after,
            callers,
            remember_blocked: self.remember_blocked,
            rate_limit_headers: self.rate_limit_headers,
            error_body: self.error_body,
        })
    }

    fn named_limits(&self) -> Result<NamedLimits, BuildError> {
        for (name, limit) in &self.limits {
            let invalid = |error| BuildError::Limit {
                name: name.clone(),
                error,
            };
            document::check_name(name).map_err(|reason| invalid(InvalidLimit { key: "name", reason }))?;
            limit.validate().map_err(invalid)?;
        }
        let file = match &self.limits_file {
            None => None,
            Some(path) => {
                let error = |line, key, reason| LimitsFileError {
                    path: path.clone(),
                    line,
                    key,
                    reason,
                };
                let text = fs::read_to_string(path).map_err(|cause| error(None, String::new(), cause.to_string()))?;
                let defined = document::from_toml(&text)
                    .map_err(|mistake| error(Some(mistake.line), mistake.key, mistake.reason))?;
                let path = path.clone();
                Some((LimitsFile { path, text }, defined))
            }
        };
        Ok(NamedLimits::new(self.limits.clone(), file))
    }

    fn sharing_over(&self, store: &Arc<dyn Store>) -> Result<Option<Arc<Core>>, BuildError> {
        let Some(sharing) = &self.sharing else { return Ok(None) };
        sharing.validate_over(&**store)?;
        Ok(Some(Arc::new(Core::new(sharing.clone(), Arc::clone(store)))))
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
                if let Some(secret) = self.key_secret.clone() {
                    redis = redis.keyed(secret);
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
                if self.key_secret.is_some() {
                    return Err(invalid(
                        "key_secret",
                        "belongs to `redis(url)`: set it on the store itself",
                    ));
                }
                Ok(Arc::clone(store))
            }
        }
    }
}

/// Longest deadline of a guard. What takes longer is no guard.
pub(super) const DEADLINE_MAX: Duration = Duration::from_secs(60 * 60);

/// Most refusals that are remembered: some gigabytes.
const REMEMBER_BLOCKED_MAX: usize = 10_000_000;

/// What a Redis store takes for the longest wait between two attempts to connect.
const RECONNECT_CAP: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60 * 60);

pub(crate) fn invalid(option: &'static str, reason: &'static str) -> BuildError {
    BuildError::Invalid { option, reason }
}
