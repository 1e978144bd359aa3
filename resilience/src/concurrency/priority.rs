use std::{fmt, str::FromStr};

/// How much it matters that a request is served while others wait. The order is the order of service.
///
/// ```
/// use resilience::concurrency::Priority;
///
/// assert_eq!("background".parse(), Ok(Priority::Background));
/// assert_eq!(Priority::default().as_str(), "default");
/// assert!(Priority::Critical < Priority::Default, "critical requests are served first");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Served before all others: a payment, a health check.
    Critical,
    /// What most requests are.
    #[default]
    Default,
    /// Served when nobody else waits, and shed first: a prefetch, a batch job.
    Background,
}

impl Priority {
    /// The word that the attribute and a header use.
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
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "critical" => Ok(Self::Critical),
            "default" => Ok(Self::Default),
            "background" => Ok(Self::Background),
            _ => Err(UnknownPriority),
        }
    }
}

/// A word that names no [`Priority`]. The words are exact: lower case, no spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a priority is `critical`, `default` or `background`")]
pub struct UnknownPriority;
