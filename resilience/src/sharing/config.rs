use std::{sync::Arc, time::Duration};

use crate::BuildError;
use crate::{builder::invalid, store::Store};

/// Which breakers are shared, and when the opening of one instance's becomes that of all.
///
/// | option | default |
/// |---|---|
/// | [`system`](Self::system) | must be named |
/// | [`with_quorum`](Self::with_quorum) | 2 |
/// | [`with_window`](Self::with_window) | 30 s |
/// | [`with_instance`](Self::with_instance) | `pid-<process id>` |
///
/// ```
/// use std::time::Duration;
///
/// use resilience::sharing::Sharing;
///
/// let sharing = Sharing::system("payments-team")
///     .with_quorum(3)
///     .with_window(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub(crate) system: Arc<str>,
    pub(crate) quorum: u32,
    pub(crate) window: Duration,
    pub(crate) instance: Option<String>,
}

impl Sharing {
    /// Shares with all instances that name the same system and the same store. From 1 to 64 letters, digits, `.`, `_` and
    /// `-`.
    ///
    /// Breakers of one name in one system are one breaker: two services share a system only if their `payments` is the same.
    #[must_use]
    pub fn system(name: impl Into<Arc<str>>) -> Self {
        Self {
            system: name.into(),
            quorum: 2,
            window: Duration::from_secs(30),
            instance: None,
        }
    }

    /// How many instances must have opened their own breaker before all others follow; at least 1, which is
    /// [`with_any`](Self::with_any). Default: 2.
    ///
    /// An instance whose own breaker opens refuses calls at once, whatever the others say: the quorum only decides whether
    /// they follow, so that one bad node cannot refuse for all. If fewer instances are alive, all of those are enough.
    #[must_use]
    pub const fn with_quorum(mut self, instances: u32) -> Self {
        self.quorum = instances;
        self
    }

    /// Any instance opens for all: a quorum of 1.
    #[must_use]
    pub const fn with_any(self) -> Self {
        self.with_quorum(1)
    }

    /// How close together the instances of a quorum must have opened; from 1 s to 1 h. Default: 30 s.
    ///
    /// A failed probe counts as opening anew, and a breaker that has closed does not count.
    #[must_use]
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// What the others call this instance; from 1 to 64 visible ASCII characters. Default: `pid-` and the process's id.
    ///
    /// Need not be unique: a random part is put behind it.
    #[must_use]
    pub fn with_instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// What is right with any store, and that this one carries breakers.
    pub(crate) fn validate_over(&self, store: &dyn Store) -> Result<(), BuildError> {
        self.validate()?;
        match store.board() {
            Some(_) => Ok(()),
            None => Err(invalid(
                "share_breakers",
                "needs a store that carries breakers: this one has no board",
            )),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        let require = |holds, reason| {
            if holds {
                Ok(())
            } else {
                Err(invalid("share_breakers", reason))
            }
        };
        let in_system = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        require(
            (1..=64).contains(&self.system.len()) && self.system.bytes().all(in_system),
            "the system's name must have 1 to 64 letters, digits, `.`, `_` or `-`",
        )?;
        require(self.quorum > 0, "the quorum must be at least 1")?;
        require(
            (Duration::from_secs(1)..=Duration::from_secs(60 * 60)).contains(&self.window),
            "the window must be from 1 s to 1 h",
        )?;
        require(
            self.instance
                .as_ref()
                .is_none_or(|name| (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())),
            "the instance's name must have 1 to 64 visible ASCII characters",
        )
    }

    /// A name for this instance that no other has, not even after a restart.
    pub(crate) fn instance_id(&self) -> String {
        let name = self.instance.clone();
        let name = name.unwrap_or_else(|| format!("pid-{}", std::process::id()));
        format!("{name}-{:08x}", fastrand::u32(..))
    }
}

impl<S: Into<Arc<str>>> From<S> for Sharing {
    fn from(system: S) -> Self {
        Self::system(system)
    }
}
