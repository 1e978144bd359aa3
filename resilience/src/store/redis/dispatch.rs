//! A bound on the commands that are on their way to the server at once, and a fair line before it.
//!
//! Without a bound, a flood queues inside the connections, where every command waits behind every other, and that wait
//! looks like a slow server. In this line, a command waits at the expense of its own request only: it is dropped when it
//! has waited as long as the server would have had, or when the line is full, and the request is refused. The breaker does
//! not hear of it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, interval},
};

use crate::{standing::Standing, store_breaker::Operation};

use super::{
    line::Line,
    writer::{Answer, Job},
};

/// How often the line is searched for commands that have waited too long, while there is one.
const EVERY: Duration = Duration::from_millis(10);

/// The bound and the line of one store, for all its connections.
pub(super) struct Dispatch {
    state: Mutex<State>,
    places: usize,
    /// Whether any command waits, to be known without the lock.
    has_line: AtomicBool,
    began: Notify,
    shed: AtomicUsize,
}

struct State {
    taken: usize,
    line: Line<Waiting>,
}

struct Waiting {
    job: Job,
    to: mpsc::UnboundedSender<Job>,
    until: Instant,
}

/// A place among the commands on their way. Dropped, it goes to the next command.
pub(super) struct Place(Option<Arc<Dispatch>>);

impl Dispatch {
    /// `places` for all commands together, and a line of `capacity` for each kind of operation.
    pub(super) fn new(places: usize, capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                taken: 0,
                line: Line::new(capacity),
            }),
            places,
            has_line: AtomicBool::new(false),
            began: Notify::new(),
            shed: AtomicUsize::new(0),
        }
    }

    /// Whether commands wait.
    pub(super) fn has_line(&self) -> bool {
        self.has_line.load(Ordering::Relaxed)
    }

    /// Sends a command, or puts it in the line.
    pub(super) fn send(
        self: &Arc<Self>,
        operation: Operation,
        standing: Standing,
        mut job: Job,
        to: &mpsc::UnboundedSender<Job>,
    ) {
        let mut state = self.state();
        if state.taken < self.places {
            // No command waits while a place is free.
            state.taken += 1;
            drop(state);
            job.place = Some(Place(Some(Arc::clone(self))));
            // An error: the connection has ended. The job is dropped, which says so.
            _ = to.send(job);
            return;
        }
        let waiting = Waiting {
            until: Instant::now() + job.within,
            to: to.clone(),
            job,
        };
        let began = state.line.is_empty();
        let displaced = state.line.push(operation, standing, waiting);
        self.has_line.store(!state.line.is_empty(), Ordering::Relaxed);
        drop(state);
        if began {
            self.began.notify_one();
        }
        self.shed(displaced);
    }

    /// Drops commands that have waited too long. Runs for as long as the store lives.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            self.began.notified().await;
            let mut tick = interval(EVERY);
            loop {
                tick.tick().await;
                let now = Instant::now();
                let mut state = self.state();
                let is_late = |waiting: &Waiting| waiting.until <= now || waiting.job.answer.is_closed();
                let expired = state.line.expired(is_late);
                let is_over = state.line.is_empty();
                self.has_line.store(!is_over, Ordering::Relaxed);
                drop(state);
                self.shed(expired);
                if is_over {
                    break;
                }
            }
        }
    }

    fn release(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some(Waiting { mut job, to, until }) = state.line.next() else {
                state.taken -= 1;
                self.has_line.store(false, Ordering::Relaxed);
                return;
            };
            drop(state);
            if job.answer.is_closed() {
                continue;
            }
            if until <= Instant::now() {
                self.shed(Some(Waiting { job, to, until }));
                continue;
            }
            job.place = Some(Place(Some(Arc::clone(self))));
            match to.send(job) {
                Ok(()) => return,
                // Its connection has ended. Its place is ours still: not given back by its drop, which would come here
                // once for each command in the line.
                Err(mpsc::error::SendError(mut job)) => {
                    if let Some(place) = &mut job.place {
                        place.0 = None;
                    }
                }
            }
        }
    }

    fn shed(&self, waiting: impl IntoIterator<Item = Waiting>) {
        for Waiting { job, .. } in waiting {
            // An error: the caller has gone.
            if job.answer.send(Answer::Shed).is_ok() {
                self.shed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    // Nothing under the lock is left half done by a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(dispatch) = self.0.take() {
            dispatch.release();
        }
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("places", &self.places)
            .field("taken", &self.state().taken)
            .field("shed", &self.shed.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}
