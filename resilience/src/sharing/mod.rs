//! Breakers that know what the other instances know.

use std::{fmt, sync::Arc};

use crate::{
    breaker::CircuitBreaker,
    store::{BreakerBoard, Store},
};

pub mod admin;

mod config;
mod operator;
mod status;

pub use self::{
    config::Sharing,
    operator::{Order, OrderError, SharedBreakers},
    status::Status,
};
pub use crate::store::board::{Hold, HoldState};

/// What all handles of one runtime share.
pub(crate) struct Core {
    sharing: Sharing,
    /// Has a board: the builder has seen to that.
    store: Arc<dyn Store>,
}

impl Core {
    pub(crate) fn new(sharing: Sharing, store: Arc<dyn Store>) -> Self {
        Self { sharing, store }
    }

    fn system(&self) -> &str {
        &self.sharing.system
    }

    fn board(&self) -> &dyn BreakerBoard {
        self.store.board().expect("the builder refuses stores without a board")
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("sharing", &self.sharing)
            .finish_non_exhaustive()
    }
}

/// One dependency's breaker.
#[derive(Clone, Debug)]
pub struct SharedBreaker {
    breaker: CircuitBreaker,
    core: Option<Arc<Core>>,
}
