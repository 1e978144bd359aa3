use std::{fmt, sync::Arc, time::Duration};

/// Where a circuit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Calls pass, and their outcomes are counted.
    Closed,
    /// Calls are refused.
    Open,
    /// A fixed number of calls pass as probes; the others are refused.
    HalfOpen,
}

impl State {
    /// The state's name as logs and metrics show it: `closed`, `open`, `half_open`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a call says about the health of what stands behind the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It answered. A client error such as a 404 is an answer; whether it is also a sign of health is the caller's
    /// choice between this and [`Neutral`](Self::Neutral).
    Success,
    /// It failed, or did not answer in time.
    Failure,
    /// Nothing was learnt: the caller hung up, or never asked.
    Neutral,
}

impl<T, E> From<&Result<T, E>> for Outcome {
    fn from(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(_) => Self::Failure,
        }
    }
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// This many calls failed with no success between them.
    FailuresInARow(u32),
    /// Too large a share of the calls in the window failed.
    FailureRate {
        /// Failed calls in the window.
        failures: u64,
        /// All calls in the window.
        calls: u64,
    },
    /// Too large a share of the calls in the window was slow.
    SlowCalls {
        /// Slow calls in the window.
        slow: u64,
        /// All calls in the window.
        calls: u64,
    },
    /// The circuit has been open for its time, and the first probe was let in.
    OpenElapsed,
    /// A probe failed.
    ProbeFailed,
    /// A probe succeeded, but took too long.
    ProbeSlow,
    /// All the configured probes (this many) succeeded.
    ProbesSucceeded(u32),
    /// Other instances have opened it, or their probe has failed.
    OpenedByOthers,
    /// Another instance has closed it.
    ClosedByOthers,
    /// An operator holds it open.
    HeldOpen,
    /// An operator holds it closed.
    HeldClosed,
    /// An operator holds it open no longer.
    Released,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailuresInARow(failures) => write!(f, "{failures} failures in a row"),
            Self::FailureRate { failures, calls } => write!(f, "{failures} of {calls} calls failed"),
            Self::SlowCalls { slow, calls } => write!(f, "{slow} of {calls} calls were slow"),
            Self::OpenElapsed => f.write_str("the open time is over"),
            Self::ProbeFailed => f.write_str("a probe failed"),
            Self::ProbeSlow => f.write_str("a probe was slow"),
            Self::ProbesSucceeded(probes) => write!(f, "{probes} probes succeeded"),
            Self::OpenedByOthers => f.write_str("other instances have opened it"),
            Self::ClosedByOthers => f.write_str("another instance has closed it"),
            Self::HeldOpen => f.write_str("an operator holds it open"),
            Self::HeldClosed => f.write_str("an operator holds it closed"),
            Self::Released => f.write_str("an operator has released it"),
        }
    }
}

/// A change of a breaker's state, in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerEvent {
    /// The breaker's name.
    pub breaker: Arc<str>,
    /// The state that it left.
    pub from: State,
    /// The state that it entered.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// How long it stays open before the first probe, backoff and jitter included; `None` unless it has opened.
    pub open_for: Option<Duration>,
}

/// A [`BreakerEvent`] before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) from: State,
    pub(super) to: State,
    pub(super) cause: Cause,
    pub(super) open_for: Option<Duration>,
}

impl Transition {
    pub(super) fn named(self, breaker: Arc<str>) -> BreakerEvent {
        let Self {
            from,
            to,
            cause,
            open_for,
        } = self;
        BreakerEvent {
            breaker,
            from,
            to,
            cause,
            open_for,
        }
    }
}
