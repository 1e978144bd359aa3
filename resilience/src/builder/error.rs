use std::{fmt, path::PathBuf};

use crate::{
    breaker::ConfigError, client::InvalidNetwork, limits::UndefinedLimit, policy::InvalidLimit, store::RedisStoreError,
};

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
    /// A quota that [`Builder::limit`](crate::Builder::limit) was given makes no sense.
    #[error("option `limit`, quota `{name}`: {error}")]
    Limit {
        /// The quota's name.
        name: String,
        /// What is wrong.
        error: InvalidLimit,
    },
    /// The file of quotas cannot be read, or makes no sense.
    #[error("option `limits_file`: {0}")]
    LimitsFile(#[from] LimitsFileError),
    /// Handlers use quotas by names that no attribute, builder or file defines. See
    /// [`Builder::late_limits`](crate::Builder::late_limits).
    #[error(
        "quotas without a definition: {}. Add `.limit(\"{}\", …)` to the builder, `[limits.{}]` to the file of \
         `limits_file`, or numbers to an attribute, and so for each; or call `.late_limits()` to define them in the \
         store later", list(.0), first(.0), first(.0)
    )]
    UndefinedLimits(Vec<UndefinedLimit>),
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

fn list(undefined: &[UndefinedLimit]) -> String {
    let each: Vec<_> = undefined.iter().map(ToString::to_string).collect();
    each.join("; ")
}

fn first(undefined: &[UndefinedLimit]) -> &str {
    undefined.first().map_or("", |limit| &limit.name)
}

/// What is wrong with a file of quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsFileError {
    pub(super) path: PathBuf,
    pub(super) line: Option<usize>,
    pub(super) key: String,
    pub(super) reason: String,
}

impl LimitsFileError {
    /// The line of the mistake, from 1; `None` if the file cannot be read.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key that is wrong or missing, such as `limits.api.window`; empty if the file is no TOML.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// `limits.toml:3: `limits.api.window` must be from 1 ms to 366 days`.
impl fmt::Display for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "`{}` ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for LimitsFileError {}
