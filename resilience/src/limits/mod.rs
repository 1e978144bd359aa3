//! Quotas by name: who defines them, what is in force, and how that changes while the service runs.
//!
//! | from | how it is set | how a change is met |
//! |---|---|---|
//! | the store | [`Limits::set`], for all instances | read twice a second |
//! | a file | [`Builder::limits_file`](crate::Builder::limits_file) | read several times a second |
//! | the builder | [`Builder::limit`](crate::Builder::limit) | never changes |
//! | the attribute | `rate_limit(30, 60, name = "api")` | never changes |
//!
//! The first of them that defines a name decides. What cannot be read or makes no sense changes nothing: the quota that
//! was in force stays, and a warning says so.

pub(crate) mod document;
mod named;
mod terms;
mod verify;
mod watch;

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

pub use self::verify::UndefinedLimit;
pub(crate) use self::{
    named::{LimitsFile, NamedLimit, NamedLimits},
    terms::{Terms, TermsRef, key_id, named_family},
    verify::{mistakes, undefined},
};
use crate::{
    policy::{InvalidLimit, Limit},
    runtime::Runtime,
    store::StoreError,
};

/// How long a change by an operator may take, connecting included.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The quotas that have a name, to look at and to change while the service runs. See
/// [`Resilience::limits`](crate::Resilience::limits).
///
/// ```standalone_crate
/// use std::time::Duration;
///
/// use resilience::{Limit, Resilience, resilient};
///
/// #[resilient(rate_limit("search"))]
/// #[poem::handler]
/// async fn search() -> &'static str {
///     "a book and a lamp"
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// const MINUTE: Duration = Duration::from_secs(60);
///
/// let resilience = Resilience::builder().memory().limit("search", Limit::new(100, MINUTE)).build()?;
/// resilience.limits().set("search", Limit::new(10, MINUTE)).await?;
/// assert_eq!(resilience.limits().list()[0].limit, Some(Limit::new(10, MINUTE)));
/// resilience.limits().clear("search").await?;
/// assert_eq!(resilience.limits().list()[0].limit, Some(Limit::new(100, MINUTE)));
/// # let _endpoint = poem::get(search);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limits {
    pub(crate) runtime: Arc<Runtime>,
}

/// A quota's name, and what is in force under it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInForce {
    /// The name.
    pub name: String,
    /// The quota in force; `None` without a definition, which [`late_limits`](crate::Builder::late_limits) allows. Handlers that share a name, but wrote different numbers beside it
    /// (which [`verify`](crate::Resilience::verify) tells), keep their own while only attributes define it.
    pub limit: Option<Limit>,
    /// Who defines it.
    pub source: Option<LimitSource>,
    /// How often it has changed in this process.
    pub version: u64,
}

/// Who defines a quota. Ordered by who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LimitSource {
    /// [`Limits::set`].
    Store,
    /// [`Builder::limits_file`](crate::Builder::limits_file).
    File,
    /// [`Builder::limit`](crate::Builder::limit).
    Builder,
    /// Numbers in a handler's attribute, beside the name.
    Attribute,
}

/// Why a quota was not changed, or not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// No handler uses a quota of this name, and nobody defines one.
    #[error("no quota is called `{name}`; known: {}", .known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The numbers make no quota.
    #[error(transparent)]
    Invalid(#[from] InvalidLimit),
    /// The store did not take the change, or could not be read. After a deadline it may have taken it all the same.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

impl Limits {
    /// All names that handlers use or that were defined, sorted. Asks nobody: what the store holds is as of its last
    /// reading.
    #[must_use]
    pub fn list(&self) -> Vec<LimitInForce> {
        self.runtime.limits.all().iter().map(|named| named.in_force()).collect()
    }

    /// Changes a quota for all instances: here at once, elsewhere within a second. Kept over restarts of the service, until it
    /// is set again or [cleared](Self::clear), and as long as the store keeps its data.
    ///
    /// Counts go on where window, algorithm and key stay the same; otherwise they begin anew.
    ///
    /// # Errors
    ///
    /// For an unknown name, for numbers that make no quota, and when the store does not take it within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the change may have been made or not; this process learns which as all others do, within a second.
    pub async fn set(&self, name: &str, limit: Limit) -> Result<(), LimitsError> {
        limit.validate()?;
        self.change(name, Some(limit)).await
    }

    /// Takes the store's word for a quota away: the file, the builder or the attribute defines it again.
    ///
    /// # Errors
    ///
    /// For an unknown name, and when the store does not take it within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// As for [`set`](Self::set).
    pub async fn clear(&self, name: &str) -> Result<(), LimitsError> {
        self.change(name, None).await
    }

    /// Reads what the store holds now, for programs that do not live long enough for it to be read by itself.
    ///
    /// # Errors
    ///
    /// When the store cannot be read within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes all quotas or none.
    pub async fn refresh(&self) -> Result<(), LimitsError> {
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        Ok(self.runtime.limits.read_store(&*self.runtime.store, deadline).await?)
    }

    async fn change(&self, name: &str, limit: Option<Limit>) -> Result<(), LimitsError> {
        let limits = &self.runtime.limits;
        let Some(named) = limits.known(name) else {
            return Err(LimitsError::Unknown {
                name: name.to_owned(),
                known: limits.all().iter().map(|named| named.name().to_owned()).collect(),
            });
        };
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        Ok(limits
            .write_store(&*self.runtime.store, &named, limit, deadline)
            .await?)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl LimitSource {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::File => "file",
            Self::Builder => "builder",
            Self::Attribute => "attribute",
        }
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
