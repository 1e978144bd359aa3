//! `flag`.

use std::time::Duration;

use super::Mode;

/// `flag("checkout", default = false)`: a switch that an operator turns while the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    pub(crate) name: &'static str,
    pub(crate) default: bool,
    pub(crate) blocks_when: bool,
    pub(crate) stale: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) mode: Mode,
}

impl Flag {
    /// A kill switch: blocks while it is on, and counts as `default` while it cannot be read.
    #[must_use]
    pub const fn new(name: &'static str, default: bool) -> Self {
        Self {
            name,
            default,
            blocks_when: true,
            stale: None,
            deadline: None,
            mode: Mode::Enforce,
        }
    }

    /// Blocks while the flag has this value: `true` for a kill switch, `false` for a feature gate.
    #[must_use]
    pub const fn with_blocks_when(mut self, on: bool) -> Self {
        self.blocks_when = on;
        self
    }

    /// How long the last known value may serve in an outage before the default does.
    #[must_use]
    pub const fn with_stale(mut self, stale: Duration) -> Self {
        self.stale = Some(stale);
        self
    }

    /// Bounds the look-up; the default is the builder's (100 ms).
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Whether it decides; it does unless told otherwise.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The flag's name in the store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}
