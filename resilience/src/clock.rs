//! The time that breakers and the embedded store live by.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// A monotonic clock: the system's, or one that a test moves.
///
/// The system's clock is tokio's, so that `tokio::time::pause` holds it too.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Nanoseconds of a clock that is moved by hand; `None` for the system's.
    manual: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The system's monotonic clock.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still until [`advance`](Self::advance) moves it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn manual() -> Self {
        // Not at zero, so that a test can also look at times before its first step.
        Self {
            manual: Some(Arc::new(AtomicU64::new(nanos(Duration::from_secs(1_000_000))))),
        }
    }

    /// Moves a manual clock, and all its clones, forward.
    ///
    /// # Panics
    ///
    /// On the system's clock, which moves by itself.
    #[cfg(any(test, feature = "testing"))]
    pub fn advance(&self, by: Duration) {
        self.manual
            .as_ref()
            .expect("only a manual clock can be moved")
            .fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Time since a fixed instant of this process's life.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// [`now`](Self::now) in nanoseconds: what the hot paths compare.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match &self.manual {
            None => nanos(Instant::now().saturating_duration_since(base())),
            Some(manual) => manual.load(Ordering::SeqCst),
        }
    }
}

fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(|| {
        // In the past: the first reading is never zero, and a test whose paused time has run ahead sets no base that another
        // test's time would have to wait for.
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now)
    })
}

/// A duration in nanoseconds; 584 years and more are all the same.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
