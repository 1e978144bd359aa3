//! Lockouts without the attribute: for logins that are no handlers of poem's, or that count attempts on their own.
//!
//! The rules are those of the attribute's `lockout`: an attempt is counted before anything is verified, so that of many
//! guesses at once only as many get through as the lockout allows; attempts during a lock do not extend it; while the store
//! cannot tell, the lockout does what was decided for it, at once when the breaker is open. The origin of an attempt is the
//! exact text of its account: see [`Attempt::succeed`].
//!
//! ```
//! use std::time::Duration;
//!
//! use resilience::{Resilience, client::ClientKey, lockout::{BeginError, LockoutConfig}};
//!
//! # async fn is_right(_: &str, password: &str) -> bool { password == "correct horse battery" }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let resilience = Resilience::builder().memory().build()?;
//! let login = resilience.lockout("login", LockoutConfig::new(5, Duration::from_secs(15 * 60)))?;
//!
//! let ada = ClientKey::account("ada")?;
//! for password in ["guess"; 5] {
//!     let attempt = login.begin(&ada).await?;
//!     match is_right("ada", password).await {
//!         true => attempt.succeed().await?,
//!         false => attempt.fail().await?,
//!     }
//! }
//! assert!(matches!(login.begin(&ada).await, Err(BeginError::Locked { .. })));
//! assert!(login.status(&ada).await?.locked_for.is_some());
//! login.unlock(&ada).await?;
//! # Ok(())
//! # }
//! ```

mod attempt;
mod config;

use std::{fmt, sync::Arc, time::Duration};

pub use self::{
    attempt::{Attempt, BeginError},
    config::{InvalidLockout, LockoutConfig},
};
use crate::{
    client::ClientKey,
    observe::Complaints,
    policy::OnOutage,
    question::{Asked, Outage, Question},
    runtime::Runtime,
    store::{self, LockoutStatus, StoreError, StoreErrorKind},
    store_breaker::{Operation, StoreBreaker},
};

/// A lockout, as [`Resilience::lockout`](crate::Resilience::lockout) makes it. A cheap handle: clones share everything.
#[derive(Clone)]
pub struct Lockout {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Arc<Runtime>,
    breaker: Arc<StoreBreaker>,
    lockout: store::Lockout,
    on_outage: OnOutage,
    deadline: Duration,
    complaints: Complaints,
}

impl Lockout {
    pub(crate) fn new(runtime: &Arc<Runtime>, name: &str, config: LockoutConfig) -> Result<Self, InvalidLockout> {
        config.validate(name)?;
        let choice = runtime.settings.breakers;
        Ok(Self {
            shared: Arc::new(Shared {
                breaker: runtime.breakers.for_operation(choice, Operation::Lockout),
                lockout: store::Lockout {
                    id: id(name, &config),
                    attempts: config.attempts,
                    durations: config.durations,
                },
                on_outage: config.on_outage,
                deadline: config.deadline.unwrap_or(runtime.settings.lockout_deadline),
                complaints: Complaints::default(),
                runtime: Arc::clone(runtime),
            }),
        })
    }

    /// Counts an attempt of `subject`, before anything is verified.
    ///
    /// # Errors
    ///
    /// When the subject is locked out or too many attempts of it are under way, or when the store cannot tell and the
    /// lockout fails closed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, the attempt is given back.
    pub async fn begin(&self, subject: &ClientKey) -> Result<Attempt, BeginError> {
        let shared = &self.shared;
        let attempt = Attempt::new(self, subject);
        let asked = Asked::now();
        let attempts = [attempt.in_store()];
        let before = match shared.runtime.locked.recall(&attempts, asked.at) {
            Ok(begun) => return attempt.decided(begun[0].refused),
            Err(before) => before,
        };
        let question = Question::of_store(&shared.breaker, asked, shared.deadline, |deadline| {
            shared.runtime.store.begin_attempts(&attempts, deadline)
        });
        let answer = question.ask(asked).await;
        shared.runtime.observer.note(Operation::Lockout, &answer);
        let outage = match answer.0 {
            Ok(begun) => match begun[..] {
                [begun] => {
                    shared.runtime.locked.learn(&attempts, &before, &[begun]);
                    return attempt.decided(begun.refused);
                }
                _ => {
                    let message = "the store did not answer for the lockout";
                    Outage::Failed(StoreError::new(StoreErrorKind::Answered, message))
                }
            },
            Err(outage) => outage,
        };
        shared.complaints.about(&"lockout", &outage);
        attempt.fall_back(&outage)
    }

    /// The state of the tally of `subject` in the store.
    ///
    /// # Errors
    ///
    /// When the store does not answer within the lockout's deadline, or its breaker is open.
    pub async fn status(&self, subject: &ClientKey) -> Result<LockoutStatus, StoreError> {
        let shared = &self.shared;
        let asked = Asked::now();
        let question = Question::of_store(&shared.breaker, asked, shared.deadline, |deadline| {
            let store = &shared.runtime.store;
            store.lockout_status(&shared.lockout, subject.as_str(), deadline)
        });
        let answer = question.ask(asked).await;
        shared.runtime.observer.note(Operation::Lockout, &answer);
        answer.0.map_err(StoreError::from)
    }

    /// Forgets the tally of `subject`, with its lock and its history; `false` if there was nothing to forget. Attempts that
    /// this process has counted in an outage are forgotten too, whatever the store answers. Other processes may refuse the
    /// subject for one more second.
    ///
    /// # Errors
    ///
    /// As for [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has unlocked or not.
    pub async fn unlock(&self, subject: &ClientKey) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let here = shared.runtime.insurance.unlock_now(&shared.lockout, subject.as_str());
        let asked = Asked::now();
        let question = Question::of_store(&shared.breaker, asked, shared.deadline, |deadline| {
            shared.runtime.store.unlock(&shared.lockout, subject.as_str(), deadline)
        });
        let answer = question.ask(asked).await;
        shared.runtime.observer.note(Operation::Lockout, &answer);
        shared.runtime.locked.forget(&shared.lockout.id, subject.as_str());
        answer.0.map(|there| here || there).map_err(StoreError::from)
    }
}

impl fmt::Debug for Lockout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lockout")
            .field("lockout", &self.shared.lockout)
            .finish_non_exhaustive()
    }
}

/// Begins with a sign of its own, which no lockout of a handler does. Other numbers are another lockout: two that disagree
/// would cut each other's history.
fn id(name: &str, config: &LockoutConfig) -> String {
    let durations: Vec<_> = config
        .durations
        .iter()
        .map(|duration| duration.as_millis().to_string())
        .collect();
    format!("+{name}:{}:{}ms", config.attempts, durations.join(","))
}
