//! Quotas by name.

use std::path::PathBuf;

use super::Builder;
use crate::policy::Limit;

impl Builder {
    /// Defines a quota by name, for handlers that say `rate_limit("api")`, and for those with numbers of their own beside
    /// the name, which these replace. A second definition of a name replaces the first.
    ///
    /// What a [file](Self::limits_file) or the [store](crate::Limits::set) says about a name comes before it.
    ///
    /// ```standalone_crate
    /// use std::time::Duration;
    ///
    /// use resilience::{Limit, Resilience, resilient};
    ///
    /// #[resilient(rate_limit("api", key = global))]
    /// #[poem::handler]
    /// async fn search() -> &'static str {
    ///     "a book and a lamp"
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .limit("api", Limit::new(100, Duration::from_secs(60)))
    ///     .build()?;
    /// resilience.verify()?;
    /// # let _endpoint = poem::get(search);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, name: impl Into<String>, limit: Limit) -> Self {
        self.limits.push((name.into(), limit));
        self
    }

    /// Defines quotas by name in a file of TOML, which is read by [`build`](Self::build). What it says about a name comes
    /// before the builder's [`limit`](Self::limit) and after what the [store](crate::Limits::set) says.
    ///
    /// ```toml
    /// [limits.api]
    /// limit = 100
    /// window = "1m"                  # or seconds, as a number
    /// algorithm = "token_bucket"     # or "sliding_window" (default), "fixed_window"
    /// burst = 20                     # of a token bucket only
    /// on_outage = "fail_local"       # or "fail_open", "fail_closed"; without it, what each handler says
    /// ```
    ///
    /// While the service runs, a change is in force within a second. A file that has become invalid, or is gone, leaves
    /// the quotas as they are, with a warning.
    pub fn limits_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.limits_file = Some(path.into());
        self
    }
    /// Allows handlers to use quotas by name that no attribute, builder or file defines. Without this,
    /// [`build`](Self::build) fails and names them.
    ///
    /// Such a quota answers as in an outage until it is [set in the store](crate::Limits::set). It lets the request pass
    /// with `x-ratelimit-fallback: open`, also if it fails local, or refuses it with 503 if it fails closed. A warning in
    /// the log names it. A definition in the store alone is lost with the store's data, and is not known to an instance
    /// that starts while the store is down. [`Limits::list`](crate::Limits::list) shows the quotas without a definition.
    ///
    /// ```standalone_crate
    /// use std::time::Duration;
    ///
    /// use resilience::{BuildError, Limit, Resilience, resilient};
    ///
    /// #[resilient(rate_limit("partners", key = header("x-partner")))]
    /// #[poem::handler]
    /// async fn export() -> &'static str {
    ///     "a book and a lamp"
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let error = Resilience::builder().memory().build().unwrap_err();
    /// assert!(matches!(&error, BuildError::UndefinedLimits(limits) if limits[0].name == "partners"));
    ///
    /// let resilience = Resilience::builder().memory().late_limits().build()?;
    /// assert_eq!(resilience.limits().list()[0].limit, None);
    /// resilience.limits().set("partners", Limit::new(100, Duration::from_secs(60))).await?;
    /// # let _endpoint = poem::get(export);
    /// # Ok(())
    /// # }
    /// ```
    pub fn late_limits(mut self) -> Self {
        self.late_limits = true;
        self
    }
}
