use std::{fmt, str::FromStr};

/// Who is served first, and shed last.
///
/// The order is that of service: `Critical < Default < Background`.
///
/// ```
/// use resilience::concurrency::Priority;
///
/// assert_eq!("background".parse(), Ok(Priority::Background));
/// assert!(Priority::Critical < Priority::Default);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others: health of the service, payment, an operator.
    Critical,
    /// What nothing else is said of.
    #[default]
    Default,
    /// After all others, and the first to be shed: prefetches, exports, crawlers.
    Background,
}

impl Priority {
    /// The word that the attribute uses for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Default => "default",
            Self::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(word: &str) -> Result<Self, UnknownPriority> {
        match word {
            "critical" => Ok(Self::Critical),
            "default" => Ok(Self::Default),
            "background" => Ok(Self::Background),
            _ => Err(UnknownPriority),
        }
    }
}

/// A word that is no [`Priority`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a priority is `critical`, `default` or `background`")]
pub struct UnknownPriority;
