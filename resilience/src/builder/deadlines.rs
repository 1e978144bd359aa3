//! How long guards may take, and what a caller may say about it.

use std::time::Duration;

use poem::http::HeaderName;

use super::{BuildError, Builder, build::invalid, callers::collected};
use crate::{
    client::{InvalidNetwork, Network},
    deadline::DeadlineHeader,
};

#[derive(Debug)]
pub(super) struct HeaderSettings {
    name: String,
    ceiling: Duration,
    from: Result<Vec<Network>, InvalidNetwork>,
}

impl Builder {
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

    /// How long counting an attempt may take, and settling it, for policies that do not say.
    pub fn lockout_deadline(mut self, deadline: Duration) -> Self {
        self.lockout_deadline = deadline;
        self
    }

    /// Lets callers in these networks shorten a request's deadline, by a header that holds the whole milliseconds that
    /// they leave it, as [`deadline::header_value`](crate::deadline::header_value) writes it. Networks are written as for
    /// [`trusted_proxies`](Self::trusted_proxies); it is the connection's peer that must lie in one of them. A proxy there
    /// must not pass on what its clients send under this name.
    ///
    /// A handler with a `deadline` of its own keeps the shorter of the two; any other gets the caller's. More than
    /// `ceiling` counts as `ceiling`, from 1 ms to 1 h. It runs from the request's arrival, guards and queue included; a
    /// request that has no time left is answered at once with 504, and nothing is asked or counted for it.
    /// Whatever is no such number (negative, a text, repeated), or comes from anybody else, is not read, and is no error.
    ///
    /// ```
    /// # use resilience::Resilience;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), resilience::BuildError> {
    /// let resilience = Resilience::builder()
    ///     .memory()
    ///     .deadline_header("x-deadline-ms", Duration::from_secs(30), ["10.0.0.0/8"])
    ///     .build()?;
    /// # drop(resilience);
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline_header<N>(
        mut self,
        name: impl Into<String>,
        ceiling: Duration,
        from: impl IntoIterator<Item = N>,
    ) -> Self
    where
        N: TryInto<Network, Error: Into<InvalidNetwork>>,
    {
        self.deadline_header = Some(HeaderSettings {
            name: name.into(),
            ceiling,
            from: collected(from),
        });
        self
    }

    pub(super) fn checked_deadline_header(&self) -> Result<Option<DeadlineHeader>, BuildError> {
        let option = "deadline_header";
        let Some(settings) = &self.deadline_header else {
            return Ok(None);
        };
        if !(Duration::from_millis(1)..=super::build::DEADLINE_MAX).contains(&settings.ceiling) {
            return Err(invalid(option, "must have a ceiling from 1 ms to 1 h"));
        }
        Ok(Some(DeadlineHeader {
            name: HeaderName::from_bytes(settings.name.as_bytes())
                .map_err(|_| invalid(option, "is not the name of a header"))?,
            ceiling: settings.ceiling,
            from: settings
                .from
                .clone()
                .map_err(|error| BuildError::Network { option, error })?,
        }))
    }
}
