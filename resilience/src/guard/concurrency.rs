//! Slots: how many requests of a handler are in flight, and who waits for the next.

use std::{fmt, sync::Arc};

use poem::Request;

use crate::{
    breaker::Outcome,
    chain::End,
    concurrency::{Adaptive, ConcurrencyConfig, ConcurrencyLimit, Priority, Shed, Slot},
    deadline,
    error::Error,
    observe::{Answer, Tally},
    policy::Concurrency,
    runtime::Runtime,
};

/// The slots of one handler.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) limit: ConcurrencyLimit,
    pub(crate) priority: Priority,
    pub(crate) tally: Tally,
}

/// Whatever else a request says about its priority.
#[derive(Clone, Default)]
pub(crate) struct PriorityOf(pub(crate) Option<Arc<PriorityFn>>);

type PriorityFn = dyn Fn(&Request, Priority) -> Priority + Send + Sync;

impl fmt::Debug for PriorityOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "PriorityOf(…)"
        } else {
            "PriorityOf(None)"
        })
    }
}

impl Slots {
    /// Slots of the handler of this name.
    pub(crate) fn new(handler: String, spec: ConcurrencyConfig, priority: Priority) -> Self {
        let limit = ConcurrencyLimit::new(handler, spec).expect("checked where it was written");
        Self {
            limit,
            priority,
            tally: Tally::default(),
        }
    }

    /// A slot for this request: at once, or after a wait in the queue.
    ///
    /// # Errors
    ///
    /// 503 `overloaded`; 504 `timeout` if the budget around it ended the wait.
    pub(crate) async fn acquire(&self, runtime: &Runtime, request: &Request) -> Result<Slot, Error> {
        let priority = match &runtime.settings.priority.0 {
            None => self.priority,
            Some(of) => of(request, self.priority),
        };
        match self.limit.acquire(priority).await {
            Ok(slot) => {
                self.tally.count(Answer::Passed);
                Ok(slot)
            }
            Err(overloaded) => {
                self.tally.count(Answer::Rejected);
                let is_late = overloaded.reason() == Shed::QueueTimeout && deadline::is_cancelled();
                Err(if is_late { Error::timeout() } else { overloaded.into() })
            }
        }
    }
}

impl From<&Concurrency> for ConcurrencyConfig {
    fn from(spec: &Concurrency) -> Self {
        let mut config = Self::new(spec.limit).with_queue(spec.queue);
        if let Some(timeout) = spec.queue_timeout {
            config = config.with_queue_timeout(timeout);
        }
        if spec.adaptive {
            config = config.with_adaptive(Adaptive::default());
        }
        config
    }
}

/// What the handler's work says to an adaptive limit: how long an answer took, or that there was none in time. A server
/// error says nothing: it may be quick (a circuit that is open), and would pass for the best that the service can do.
pub(crate) fn served(end: End, outcome: &poem::Result<poem::Response>) -> Outcome {
    let status = match outcome {
        Ok(response) => response.status(),
        Err(error) => error.status(),
    };
    match end {
        End::OutOfTime => Outcome::Failure,
        End::Answered if !status.is_server_error() => Outcome::Success,
        End::Answered | End::ClientGone => Outcome::Neutral,
    }
}
