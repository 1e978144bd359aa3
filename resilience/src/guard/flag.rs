//! Flags: switches that an operator turns while the service runs. In an outage the last known value serves for a while
//! if the policy says so, then the default.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use poem::http::StatusCode;
use tokio::time::Instant;

use crate::{
    bound::BoundFlag,
    error::Error,
    observe::{Answer, Complaints},
    policy::Mode,
    question::{Asked, Outage, Question},
    runtime::Runtime,
    store_breaker::Operation,
    trail::Trail,
};

/// The state of one flag, shared by all handlers that ask for it.
#[derive(Debug, Default)]
pub(crate) struct FlagState {
    last_known: LastKnown,
    /// Whether the last answer of the store was a value that cannot be read.
    is_unreadable: AtomicBool,
    complaints: Complaints,
}

impl FlagState {
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Ordering::Relaxed)
    }

    /// Notes an answer of the store, and complains of a value that cannot be read. An outage changes nothing: the value in
    /// the store is not known then.
    fn note(&self, flag: &BoundFlag, answer: &Result<Option<bool>, Outage>) {
        let unreadable = match answer {
            Ok(_) => None,
            Err(Outage::Failed(error)) if error.is_unreadable() => Some(error),
            Err(outage) => {
                return flag.complaints.about(&format_args!("flag:{}", flag.spec.name), outage);
            }
        };
        // Most answers change nothing: no write, which would take the cache line from other threads.
        if self.is_unreadable() != unreadable.is_some() {
            self.is_unreadable.store(unreadable.is_some(), Ordering::Relaxed);
        }
        if let Some(error) = unreadable {
            self.complaints.unreadable(flag.spec.name, error);
        }
    }
}

/// The last value that the store gave for a flag.
#[derive(Debug, Default)]
struct LastKnown(Mutex<Option<(bool, Instant)>>);

impl LastKnown {
    fn learn(&self, on: bool, at: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow answer may come after one that was asked for later.
        if known.is_none_or(|(_, known_at)| known_at <= at) {
            *known = Some((on, at));
        }
    }

    fn recall(&self, now: Instant, stale: Duration) -> Option<bool> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .filter(|(_, at)| now.saturating_duration_since(*at) <= stale)
            .map(|(on, _)| on)
    }
}

pub(crate) fn ask<'a>(runtime: &'a Runtime, flag: &'a BoundFlag, asked: Asked) -> Question<'a, Option<bool>> {
    Question::of_store(&flag.breaker, asked, flag.deadline, |deadline| {
        runtime.store.flag(flag.spec.name, deadline)
    })
}

/// Reads the verdict. A flag that nobody has set is off, which is an answer and no fallback.
pub(crate) fn read<'a>(
    question: &mut Question<'_, Option<bool>>,
    runtime: &Runtime,
    flag: &'a BoundFlag,
    asked: Asked,
    trail: &mut Trail<'a>,
) -> Result<(), Error> {
    let answer = question.read();
    runtime.observer.note(Operation::Flag, &answer);
    flag.state.note(flag, &answer.0);
    let (on, fallback) = match answer.0 {
        Ok(value) => {
            let on = value.unwrap_or(false);
            if flag.spec.stale.is_some() {
                flag.state.last_known.learn(on, asked.at);
            }
            (on, None)
        }
        // A switch that was not read must not turn a feature on: the request is refused.
        Err(outage) if outage.is_shed() && flag.spec.mode == Mode::Enforce => {
            flag.tally.count(Answer::Shed);
            return Err(Error::too_busy());
        }
        Err(_outage) => {
            // What an observing flag falls back to decides nothing that a client would need to know.
            if flag.spec.mode == Mode::Enforce {
                trail.flag_fell_back(flag);
            }
            let stale = flag
                .spec
                .stale
                .and_then(|stale| flag.state.last_known.recall(asked.at, stale));
            match stale {
                Some(on) => (on, Some(Answer::Stale)),
                None => (flag.spec.default, Some(Answer::Default)),
            }
        }
    };
    if on != flag.spec.blocks_when {
        flag.tally.count(fallback.unwrap_or(Answer::Passed));
        return Ok(());
    }
    let refusal = Error::feature_disabled(if flag.spec.blocks_when {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::NOT_FOUND
    });
    match flag.spec.mode {
        Mode::Enforce => {
            flag.tally.count(fallback.unwrap_or(Answer::Rejected));
            Err(refusal)
        }
        Mode::Observe => {
            flag.tally.count(Answer::ObservedRejected);
            let guard = format_args!("flag:{}", flag.spec.name);
            flag.would_have.would_have_rejected(&guard, &refusal);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_known_value_serves_only_so_long() {
        let known = LastKnown::default();
        let now = Instant::now();
        let stale = Duration::from_secs(30);
        assert_eq!(known.recall(now, stale), None);
        known.learn(true, now);
        assert_eq!(known.recall(now + stale, stale), Some(true));
        assert_eq!(known.recall(now + stale + Duration::from_millis(1), stale), None);
    }
}
