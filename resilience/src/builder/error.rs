use crate::{breaker::ConfigError, client::InvalidNetwork, store::RedisStoreError};

/// Why a [`Resilience`](crate::Resilience) was not built.
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
