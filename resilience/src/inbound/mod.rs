//! Guards around a whole app, or a tree of its routes, in place of one handler.
//!
//! The same guards as in the attribute, in the same order: rate limits first, so that a client over its quota never takes a
//! slot; then the slot; then the deadline, which the time in the queue does not count towards. Errors of this crate that
//! handlers return become answers with the right status, and a client that goes away cancels what was begun for it where
//! the listener [notices](crate::disconnect).
//!
//! ```
//! use std::time::Duration;
//!
//! use poem::{EndpointExt, Route, get, handler};
//! use resilience::{Resilience, concurrency::ConcurrencyConfig, inbound::RateLimit};
//!
//! #[handler]
//! fn hello() -> &'static str {
//!     "Hello."
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let resilience = Resilience::builder().memory().build()?;
//! let guarded = resilience
//!     .inbound("app")
//!     .rate_limit(RateLimit::new(1_000, Duration::from_secs(60)))
//!     .concurrency(ConcurrencyConfig::new(256).with_queue(64))
//!     .deadline(Duration::from_secs(10))
//!     .build()?;
//! let app = Route::new().at("/", get(hello)).with(guarded);
//! # let response = app.get_response(poem::Request::default()).await;
//! # assert_eq!(response.headers()["x-ratelimit-remaining"], "999");
//! # Ok(())
//! # }
//! # use poem::Endpoint;
//! ```
//!
//! It installs its runtime for the guarded handlers below, so that no `.with(resilience)` is needed besides. Attributes
//! further in go on where it has left off: a quota of the same name (with the same key) is not taken twice, the rate limit
//! headers tell of both, and a deadline can only be shortened.

mod endpoint;
mod pipeline;

use std::{sync::Arc, time::Duration};

pub use self::{
    endpoint::{Inbound, InboundEndpoint},
    pipeline::{InboundPipeline, Once, PipelineEndpoint},
};
pub use crate::policy::{Key, KeyFn, Mode, RateLimit};
use crate::{
    bound::Bound,
    concurrency::{ConcurrencyConfig, ConfigError, Priority},
    limits::document,
    policy::InvalidLimit,
    runtime::Resilience,
};

impl Resilience {
    /// Starts to build guards around a whole app, or a tree of its routes. `name` tells them apart in metrics and in
    /// [`policies`](Self::policies), and unnamed quotas belong to it: use each name once.
    pub fn inbound(&self, name: &'static str) -> InboundBuilder {
        InboundBuilder {
            resilience: self.clone(),
            name,
            rate_limits: Vec::new(),
            concurrency: None,
            priority: Priority::Default,
            deadline: None,
        }
    }
}

/// Builds [`Inbound`] guards.
///
/// See the [module](self) for an example.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct InboundBuilder {
    resilience: Resilience,
    name: &'static str,
    rate_limits: Vec<RateLimit>,
    concurrency: Option<ConcurrencyConfig>,
    priority: Priority,
    deadline: Option<Duration>,
}

impl InboundBuilder {
    /// Adds a quota; several are taken all or none. `RateLimit::named("api")` is one that the builder, a file or an
    /// operator defines.
    pub fn rate_limit(mut self, quota: RateLimit) -> Self {
        self.rate_limits.push(quota);
        self
    }

    /// Bounds the requests in flight. Each holds its slot until its answer has been sent.
    pub fn concurrency(mut self, config: ConcurrencyConfig) -> Self {
        self.concurrency = Some(config);
        self
    }

    /// Who is served first, and shed last, unless [`Builder::priority`](crate::Builder::priority) says otherwise.
    /// [`Priority::Default`] by default.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The budget of everything below, from 1 ms to 1 h. It starts when the request has its slot.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The guards, to be handed to `.with(…)`.
    ///
    /// # Errors
    ///
    /// When an option makes no sense.
    pub fn build(self) -> Result<Inbound, InboundError> {
        self.rate_limits.iter().try_for_each(|quota| self.check(quota))?;
        if let Some(config) = &self.concurrency {
            config.validate()?;
        }
        if self.deadline.is_some_and(|deadline| !DEADLINES.contains(&deadline)) {
            return Err(InboundError::Deadline);
        }
        let runtime = &self.resilience.runtime;
        let slots = self.concurrency.map(|config| (config, self.priority));
        let bound = Arc::new(Bound::inbound(
            self.name,
            &self.rate_limits,
            slots,
            self.deadline,
            runtime,
        ));
        if !runtime.watch_inbound(&bound) {
            return Err(InboundError::NameTaken(self.name));
        }
        Ok(Inbound::new(self.resilience, bound))
    }

    fn check(&self, quota: &RateLimit) -> Result<(), InboundError> {
        let shown = quota.name.unwrap_or("default").to_owned();
        let invalid = |key, reason| {
            Err(InboundError::RateLimit {
                quota: shown.clone(),
                error: InvalidLimit { key, reason },
            })
        };
        if quota.key == Key::User {
            return invalid(
                "key",
                "cannot be `user`: nobody is verified before a whole app; limit users in the attribute",
            );
        }
        if let Some(name) = quota.name
            && let Err(reason) = document::check_name(name)
        {
            return invalid("name", reason);
        }
        if quota.deadline.is_some_and(|deadline| !DEADLINES.contains(&deadline)) {
            return invalid("deadline", "must be from 1 ms to 1 h");
        }
        if !(1..=100).contains(&quota.local_share) {
            return invalid("local_share", "must be from 1 to 100 percent");
        }
        let Some(limit) = self.resilience.runtime.limits.defined(quota) else {
            return invalid(
                "name",
                "is defined by nobody: add `.limit(…)` to the builder, or it to the file of limits",
            );
        };
        if let Err(error) = limit.validate() {
            return Err(InboundError::RateLimit { quota: shown, error });
        }
        if quota.cost == 0 || quota.cost > limit.at_once() {
            return invalid(
                "cost",
                "must be from 1 to the limit, and to the burst of a token bucket",
            );
        }
        Ok(())
    }
}

/// Why [`Inbound`] guards were not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InboundError {
    /// A quota makes no sense.
    #[error("option `rate_limit`, quota `{quota}`: {error}")]
    RateLimit {
        /// The quota's name; `default` for one without.
        quota: String,
        /// What is wrong.
        error: InvalidLimit,
    },
    /// The bound of requests in flight makes no sense.
    #[error("option `concurrency`: {0}")]
    Concurrency(#[from] ConfigError),
    /// Other guards of this runtime have the name, and would share unnamed quotas and metrics with these. Clones of one
    /// [`Inbound`] may stand around several trees.
    #[error("the name `{0}` is taken by other inbound guards of this runtime")]
    NameTaken(&'static str),
    /// The deadline is out of range.
    #[error("option `deadline` must be from 1 ms to 1 h")]
    Deadline,
}

const DEADLINES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60 * 60);
