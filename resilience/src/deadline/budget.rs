//! The state of one scope.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When a scope ends, and whether it ended early.
#[derive(Debug)]
pub(super) struct Budget {
    at: Instant,
    parent: Option<Arc<Self>>,
    cut_short: AtomicBool,
    /// Made for the first who waits: most scopes have nobody who does.
    token: OnceLock<CancellationToken>,
}

impl Budget {
    pub(super) fn new(budget: Duration, parent: Option<Arc<Self>>) -> Self {
        let now = Instant::now();
        // A budget beyond the clock's range is no limit in practice.
        let own = now
            .checked_add(budget)
            .unwrap_or_else(|| now + Duration::from_secs(60 * 60 * 24 * 365));
        Self {
            at: parent.as_ref().map_or(own, |parent| parent.at.min(own)),
            parent,
            cut_short: AtomicBool::new(false),
            token: OnceLock::new(),
        }
    }

    pub(super) const fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.cut_short.load(Ordering::SeqCst) || self.parent.as_ref().is_some_and(|parent| parent.is_cut_short())
    }

    /// Completes when this scope, or one around it, is dropped unfinished.
    pub(super) async fn cut_short(&self) {
        self.token().cancelled().await;
    }

    fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(|| match &self.parent {
            Some(parent) => parent.token().child_token(),
            None => CancellationToken::new(),
        });
        // After the token is there to be found: either side sees the other.
        if self.cut_short.load(Ordering::SeqCst) {
            token.cancel();
        }
        token
    }

    fn cut(&self) {
        self.cut_short.store(true, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }
}

/// Tells all who inherited a scope that it was dropped unfinished.
pub(super) struct EndOnDrop(Option<Arc<Budget>>);

impl EndOnDrop {
    pub(super) const fn new(budget: Arc<Budget>) -> Self {
        Self(Some(budget))
    }

    /// The scope is done: those who inherited it keep their time.
    pub(super) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.cut();
        }
    }
}
