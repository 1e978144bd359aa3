//! Whether the store answers a write, asked for many callers at once.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::{Instant, timeout_at};

use crate::store::{Probe, Store, StoreErrorKind};

/// How long the store has.
const DEADLINE: Duration = Duration::from_millis(250);

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(1);

/// The last answer, or the question that is on its way.
#[derive(Debug, Default)]
pub(crate) struct Reachable(Mutex<Option<Look>>);

#[derive(Clone, Debug)]
struct Look {
    began: Instant,
    answer: Shared<BoxFuture<'static, bool>>,
}

impl Reachable {
    /// Whether the store answered within the last second, or does so now.
    pub(crate) async fn look(&self, store: &Arc<dyn Store>) -> bool {
        let look = {
            let mut last = self.last();
            let now = Instant::now();
            match &*last {
                Some(look) if now - look.began < HOLDS => look.clone(),
                _ => last.insert(Look::begin(Arc::clone(store), now)).clone(),
            }
        };
        look.answer.await
    }

    // Nothing under the lock is left half done by a panic.
    fn last(&self) -> MutexGuard<'_, Option<Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look {
    fn begin(store: Arc<dyn Store>, began: Instant) -> Self {
        let deadline = began + DEADLINE;
        let probe = async move {
            match timeout_at(deadline, store.probe(Probe::Write, deadline)).await {
                Ok(Ok(())) => true,
                // As for the breakers: a store that forbids the probe's key is a store that answers.
                Ok(Err(error)) => error.kind() == StoreErrorKind::Answered,
                Err(_elapsed) => false,
            }
        };
        Self {
            began,
            answer: probe.boxed().shared(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    use super::*;
    use crate::store::testing::{Answer, ScriptedStore};

    const WHILE: Duration = Duration::from_millis(100);

    fn store() -> (ScriptedStore, Arc<dyn Store>) {
        let store = ScriptedStore::new().on_probe(Answer::ok(()).after(WHILE));
        (store.clone(), Arc::new(store))
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_ask_once_a_second() {
        let (script, store) = store();
        let reachable = Reachable::default();
        for asked in 1..=3 {
            let all = futures_util::future::join_all((0..1_000).map(|_| reachable.look(&store)));
            assert!(all.await.into_iter().all(|reachable| reachable));
            assert!(reachable.look(&store).await);
            assert_eq!(script.calls().probe, asked);
            tokio::time::advance(HOLDS).await;
        }
        script.down();
        assert!(!reachable.look(&store).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_goes_leaves_the_others_their_answer() {
        let (script, store) = store();
        let reachable = Reachable::default();
        let mut first = Box::pin(reachable.look(&store));
        poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
        let second = reachable.look(&store);
        drop(first);
        assert!(second.await);
        assert_eq!(script.calls().probe, 1);
    }
}
