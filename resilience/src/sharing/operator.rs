//! What an operator sees and orders.

use std::{fmt, future::Future, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{Core, Sharing, Status};
use crate::{
    BuildError,
    store::{
        BreakerBoard, Store, StoreError, StoreErrorKind,
        board::{HoldState, NewHold},
    },
};

/// How many bytes a breaker's name may have.
pub(super) const NAME_BYTES: RangeInclusive<usize> = 1..=128;
/// How many bytes the name of somebody may have who gives an order over HTTP; an order in code may also be nobody's.
pub(super) const AUTHOR_BYTES: RangeInclusive<usize> = 1..=128;

/// How long a change by an operator may take, connecting included.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);

/// All shared breakers of a system, to look at and to hold. See
/// [`Resilience::shared_breakers`](crate::Resilience::shared_breakers).
///
/// ```
/// use resilience::{Resilience, breaker::State, sharing::Order};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let resilience = Resilience::builder().memory().share_breakers("payments-team").build()?;
/// let breakers = resilience.shared_breakers().ok_or("the builder was told to share")?;
///
/// breakers.hold_open("payments", Order::because("maintenance until noon").by("ada")).await?;
/// assert_eq!(breakers.list().await?[0].state, State::Open);
///
/// assert!(breakers.release("payments").await?);
/// assert_eq!(breakers.list().await?[0].state, State::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedBreakers {
    core: Arc<Core>,
}

/// Why an operator holds a breaker, who says so, and for how long.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::sharing::Order;
///
/// let order = Order::because("they deploy").by("ada").lasting(Duration::from_secs(600));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an order does nothing until it is given"]
pub struct Order {
    reason: String,
    author: String,
    lasts: Option<Duration>,
}

impl Order {
    /// An order for this reason, of nobody in particular, until it is released.
    pub fn because(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            ..Self::default()
        }
    }

    /// Who says so.
    pub fn by(mut self, author: impl Into<String>) -> Self {
        self.author = author.into();
        self
    }

    /// Ends by itself after so long, by the store's clock; at least a millisecond.
    pub const fn lasting(mut self, lasts: Duration) -> Self {
        self.lasts = Some(lasts);
        self
    }
}

/// Why an order was not given, or breakers were not listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// A breaker's name, a reason or an author is too long.
    #[error("{what} must have {bounds} bytes")]
    Invalid {
        /// Which.
        what: &'static str,
        /// How many bytes it may have.
        bounds: &'static str,
    },
    /// The store did not take it, or could not be read. After a deadline it may have taken it all the same.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

impl SharedBreakers {
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The breakers of `system` in this store, for a program that only looks and orders, such as an operator's command: it
    /// has no breakers of its own, and does not count as an instance.
    ///
    /// # Errors
    ///
    /// For a system's name that makes no sense, and for a store that carries no breakers.
    pub fn over(store: impl Store, system: impl Into<Arc<str>>) -> Result<Self, BuildError> {
        let sharing = Sharing::system(system);
        sharing.validate_over(&store)?;
        Ok(Self::new(Arc::new(Core::new(sharing, Arc::new(store)))))
    }

    /// All breakers of the system that any instance has had within a week, or that are held, sorted by name: as the store
    /// has them now.
    ///
    /// # Errors
    ///
    /// When the store does not answer within 5 seconds.
    pub async fn list(&self) -> Result<Vec<Status>, OrderError> {
        let board = self.ask(|board, deadline| board.look(self.core.system(), None, deadline));
        let mut all: Vec<_> = board.await?.entries.iter().map(Status::of).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Opens a breaker on all instances, within a second, and keeps it open: over restarts and over a healthy dependency.
    ///
    /// It replaces an order that stands. No instance needs to have such a breaker yet.
    ///
    /// # Errors
    ///
    /// For a name that is empty or longer than 128 bytes, a reason longer than 512 and an author longer than 128, and when
    /// the store does not take the order within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the order may have been given or not.
    pub async fn hold_open(&self, name: &str, order: Order) -> Result<(), OrderError> {
        self.hold(name, HoldState::Open, order).await
    }

    /// Closes a breaker on all instances, within a second, and keeps it closed, whatever comes of the calls: a false alarm.
    ///
    /// # Errors
    ///
    /// As [`hold_open`](Self::hold_open).
    ///
    /// # Cancel safety
    ///
    /// As [`hold_open`](Self::hold_open).
    pub async fn hold_closed(&self, name: &str, order: Order) -> Result<(), OrderError> {
        self.hold(name, HoldState::Closed, order).await
    }

    /// Lets go of a breaker: it is closed then, and opens by its own rules. `false` if nobody held it.
    ///
    /// # Errors
    ///
    /// When the store does not take it within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// As [`hold_open`](Self::hold_open).
    pub async fn release(&self, name: &str) -> Result<bool, OrderError> {
        let was_held = self.ask(|board, deadline| board.hold(self.core.system(), name, None, deadline));
        Ok(was_held.await?)
    }

    async fn hold(&self, name: &str, state: HoldState, order: Order) -> Result<(), OrderError> {
        bounded("a breaker's name", name, NAME_BYTES, "1 to 128")?;
        bounded("a reason", &order.reason, 0..=512, "at most 512")?;
        bounded("an author", &order.author, 0..=*AUTHOR_BYTES.end(), "at most 128")?;
        let hold = NewHold {
            state,
            reason: order.reason,
            author: order.author,
            lasts: order.lasts,
        };
        self.ask(|board, deadline| board.hold(self.core.system(), name, Some(&hold), deadline))
            .await?;
        Ok(())
    }

    async fn ask<'a, T, F: Future<Output = Result<T, StoreError>> + 'a>(
        &'a self,
        question: impl FnOnce(&'a dyn BreakerBoard, Instant) -> F,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + ADMIN_TIMEOUT;
        let answer = timeout_at(deadline, question(self.core.board(), deadline)).await;
        answer.unwrap_or_else(|_elapsed| {
            let message = format!("it has not answered within {ADMIN_TIMEOUT:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, message))
        })
    }
}

impl fmt::Debug for SharedBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBreakers")
            .field("system", &self.core.system())
            .finish_non_exhaustive()
    }
}

fn bounded(
    what: &'static str,
    text: &str,
    bytes: RangeInclusive<usize>,
    bounds: &'static str,
) -> Result<(), OrderError> {
    if bytes.contains(&text.len()) {
        Ok(())
    } else {
        Err(OrderError::Invalid { what, bounds })
    }
}
