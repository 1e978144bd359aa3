//! The task that picks up changes: one for each runtime whose handlers use a quota with a name.

use std::{
    path::Path,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{NamedLimits, document};
use crate::{
    runtime::Runtime,
    store::{StoreError, StoreErrorKind},
    store_breaker::Operation,
};

/// A change is in force within two of these: a file is believed when it says the same thing twice.
const EVERY: Duration = Duration::from_millis(400);

/// How long one reading of the store may take.
const READ_DEADLINE: Duration = Duration::from_millis(350);

impl NamedLimits {
    /// The runtime serves from now on.
    pub(crate) fn attach(&self, runtime: &Arc<Runtime>) {
        self.home.get_or_init(|| Arc::downgrade(runtime));
        self.watch();
    }

    /// Starts the task if there is something to watch and nobody does.
    pub(super) fn watch(&self) {
        let Some(home) = self.home.get() else { return };
        let Ok(handle) = Handle::try_current() else { return };
        if self.is_used() && !self.watched.swap(true, Ordering::Relaxed) {
            handle.spawn(watch_until_gone(Weak::clone(home)));
        }
    }
}

async fn watch_until_gone(home: Weak<Runtime>) {
    let mut file = home.upgrade().and_then(|runtime| FileWatch::new(&runtime.limits));
    let mut store = StoreWatch::default();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(runtime) = home.upgrade() else { return };
        let file = async {
            if let Some(file) = &mut file {
                file.look(&runtime.limits).await;
            }
        };
        tokio::join!(file, store.look(&runtime));
    }
}

/// What the last reading of the store came to.
#[derive(Default)]
struct StoreWatch {
    complained: bool,
}

impl StoreWatch {
    /// Nothing here is news to a breaker: a reading that fails says no more than that it is to be done again.
    async fn look(&mut self, runtime: &Runtime) {
        if !runtime
            .breakers
            .is_closed(runtime.settings.breakers, Operation::RateLimit)
        {
            return;
        }
        let deadline = Instant::now() + READ_DEADLINE;
        match runtime.limits.read_store(&*runtime.store, deadline).await {
            Ok(()) => self.complained = false,
            Err(error) => self.complain(&error),
        }
    }

    fn complain(&mut self, error: &StoreError) {
        match error.kind() {
            // Somebody has to mend it: a key of the wrong type, a command that is forbidden.
            StoreErrorKind::Answered if !std::mem::replace(&mut self.complained, true) => {
                tracing::warn!(%error, "the store's quotas cannot be read: what was in force stays");
            }
            _ => tracing::debug!(%error, "the store's quotas were not read"),
        }
    }
}

/// A file of quotas, and what it said last.
struct FileWatch {
    path: Arc<Path>,
    /// What was taken over, or complained about.
    settled: Result<String, String>,
    /// What it said at the last look, if that was something else.
    pending: Option<Result<String, String>>,
}

impl FileWatch {
    fn new(limits: &NamedLimits) -> Option<Self> {
        let file = limits.file.as_ref()?;
        Some(Self {
            path: Arc::from(file.path.as_path()),
            settled: Ok(file.text.clone()),
            pending: None,
        })
    }

    async fn look(&mut self, limits: &NamedLimits) {
        let path = Arc::clone(&self.path);
        let read = move || std::fs::read_to_string(path).map_err(|error| error.to_string());
        let Ok(says) = tokio::task::spawn_blocking(read).await else {
            return;
        };
        self.hear(says, limits);
    }

    fn hear(&mut self, says: Result<String, String>, limits: &NamedLimits) {
        if says == self.settled {
            self.pending = None;
        } else if self.pending.as_ref() == Some(&says) {
            // Twice the same: nobody is in the middle of writing it.
            self.pending = None;
            self.take_over(&says, limits);
            self.settled = says;
        } else {
            self.pending = Some(says);
        }
    }

    fn take_over(&self, says: &Result<String, String>, limits: &NamedLimits) {
        let path = self.path.display();
        match says {
            Ok(text) => match document::from_toml(text) {
                Ok(defined) => limits.file_says(&defined),
                Err(mistake) => tracing::warn!(
                    reason = %format_args!("{path}:{mistake}"),
                    "the file of quotas is invalid: what was in force stays"
                ),
            },
            Err(reason) => tracing::warn!(%path, %reason, "the file of quotas cannot be read: what was in force stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::limits::LimitsFile;

    #[test]
    fn a_file_is_believed_when_it_says_the_same_twice_and_makes_sense() {
        let says = |limit: u32| Ok(format!("[limits.api]\nlimit = {limit}\nwindow = 60"));
        let text: String = says(1).unwrap_or_else(|never: String| never);
        let file = LimitsFile {
            path: PathBuf::from("limits.toml"),
            text: text.clone(),
        };
        let limits = NamedLimits::new([], Some((file, document::from_toml(&text).unwrap())));
        let mut watch = FileWatch::new(&limits).unwrap();
        let mut heard = |says: Result<String, String>| {
            watch.hear(says, &limits);
            limits
                .known("api")
                .unwrap()
                .in_force()
                .limit
                .map(|limit| limit.requests())
        };
        assert_eq!(heard(says(2)), Some(1));
        assert_eq!(heard(Ok(String::new())), Some(1), "somebody is writing it");
        assert_eq!(heard(says(2)), Some(1));
        assert_eq!(heard(says(2)), Some(2));
        for invalid in [says(0), Err("gone".to_owned()), Ok("[".to_owned())] {
            assert_eq!(heard(invalid.clone()), Some(2));
            assert_eq!(heard(invalid), Some(2));
        }
        assert_eq!(heard(says(3)), Some(2));
        assert_eq!(heard(says(3)), Some(3));
        assert_eq!(heard(Ok(String::new())), Some(3));
        assert_eq!(heard(Ok(String::new())), None);
    }
}
