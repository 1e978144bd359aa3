//! The board of a store that a test drives: a real one, with whatever the test puts between.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt, future,
    stream::{self, BoxStream},
};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::Instant,
};

use super::{Answer, ScriptedStore};
use crate::store::{
    BreakerBoard, MemoryStore, Store, StoreError, StoreFuture,
    board::{At, Board, Entry, Leased, NewHold, Presence, Trip},
};

/// How often each operation of the board was called, answered or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardCalls {
    /// Calls of [`BreakerBoard::look`], those that say who is here among them.
    pub look: usize,
    /// Calls of [`BreakerBoard::look`] that say who is here.
    pub presence: usize,
    /// Calls of [`BreakerBoard::trip`].
    pub trip: usize,
    /// Calls of [`BreakerBoard::close`].
    pub close: usize,
    /// Calls of [`BreakerBoard::reopen`].
    pub reopen: usize,
    /// Calls of [`BreakerBoard::lease`].
    pub lease: usize,
    /// Calls of [`BreakerBoard::yield_lease`].
    pub yield_lease: usize,
    /// Calls of [`BreakerBoard::hold`].
    pub hold: usize,
    /// Calls of [`BreakerBoard::changes`].
    pub changes: usize,
}

impl BoardCalls {
    /// All but those that only listen.
    #[must_use]
    pub const fn asked(&self) -> usize {
        self.look + self.written()
    }

    /// All that change something if they are answered, but for those that say who is here.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.trip + self.close + self.reopen + self.lease + self.yield_lease + self.hold
    }
}

/// What stands between whoever asks and the board.
#[derive(Debug)]
pub(super) struct BoardScript {
    behind: Behind,
    answer: Answer<()>,
    leases: Answer<()>,
    listen: Answer<()>,
    loses_pushes: bool,
    calls: BoardCalls,
    signals: broadcast::Sender<Signal>,
}

/// The board itself, which several stores may stand before.
type Behind = Arc<Mutex<MemoryStore>>;

#[derive(Clone, Copy, Debug)]
enum Signal {
    Push,
    HangUp,
}

impl Default for BoardScript {
    fn default() -> Self {
        Self::before(Behind::default())
    }
}

impl BoardScript {
    fn before(behind: Behind) -> Self {
        Self {
            behind,
            answer: Answer::default(),
            leases: Answer::default(),
            listen: Answer::default(),
            loses_pushes: false,
            calls: BoardCalls::default(),
            signals: broadcast::Sender::new(64),
        }
    }

    /// Both at once: as in an outage.
    pub(super) fn all(&mut self, answer: &Answer<()>) {
        self.answer = answer.clone();
        self.listen = answer.clone();
    }
}

/// The board is a real one, until it is told otherwise.
impl ScriptedStore {
    /// Another store with a script of its own before the same board: what one instance of several sees.
    #[must_use]
    pub fn beside(&self) -> Self {
        let behind = self.script().board.behind.clone();
        Self::new().set(|script| script.board = BoardScript::before(behind))
    }

    /// Whether and when the board answers questions. A late answer is late only for the caller: the board has acted.
    pub fn on_board(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.board.answer = answer)
    }

    /// Whether the board answers about leases, if it [answers](Self::on_board) at all.
    pub fn on_leases(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.board.leases = answer)
    }

    /// Whether and when one may begin to listen for changes. Whoever listens already goes on.
    pub fn on_changes(&self, answer: Answer<()>) -> Self {
        self.set(|script| script.board.listen = answer)
    }

    /// Whether changes of the board are kept from whoever listens.
    pub fn lose_pushes(&self, lose: bool) -> Self {
        self.set(|script| script.board.loses_pushes = lose)
    }

    /// Tells whoever listens of a change, though there was none.
    pub fn push(&self) {
        self.signal(Signal::Push);
    }

    /// Ends the streams of whoever listens.
    pub fn hang_up(&self) {
        self.signal(Signal::HangUp);
    }

    /// Puts an empty board in the place of the one that was there, for all stores before it.
    pub fn forget_board(&self) {
        let behind = self.script().board.behind.clone();
        // Dropped out of the lock: that is what listeners hear of.
        let before = std::mem::take(&mut *behind.lock().unwrap_or_else(PoisonError::into_inner));
        drop(before);
    }

    /// How often each operation of the board was called so far.
    #[must_use]
    pub fn board_calls(&self) -> BoardCalls {
        self.script().board.calls
    }

    fn signal(&self, signal: Signal) {
        // An error only says that nobody listens.
        _ = self.script().board.signals.send(signal);
    }

    fn behind(&self) -> MemoryStore {
        let behind = self.script().board.behind.clone();
        let store = behind.lock().unwrap_or_else(PoisonError::into_inner);
        store.clone()
    }

    /// Counts a question when it is first polled, and lets it through to the board if the script does.
    async fn enter(
        &self,
        called: impl FnOnce(&mut BoardCalls) + Send,
    ) -> Result<(MemoryStore, Answer<()>), StoreError> {
        let answer = {
            let mut script = self.script();
            called(&mut script.board.calls);
            script.board.answer.clone()
        };
        if !answer.is_ok() {
            answer.clone().give().await?;
        }
        Ok((self.behind(), answer))
    }
}

fn board_of(store: &MemoryStore) -> &dyn BreakerBoard {
    store.board().expect("the embedded store has one")
}

/// One question: counted, put to the board behind, and answered when the script says so.
macro_rules! through {
    ($self:ident, $count:ident, $board:ident => $question:expr) => {
        async move {
            let (store, answer) = $self.enter(|calls| calls.$count += 1).await?;
            let $board = board_of(&store);
            let said = $question.await;
            answer.give().await?;
            said
        }
        .boxed()
    };
}

impl BreakerBoard for ScriptedStore {
    fn look<'a>(
        &'a self,
        system: &'a str,
        presence: Option<Presence<'a>>,
        deadline: Instant,
    ) -> StoreFuture<'a, Board> {
        async move {
            let called = |calls: &mut BoardCalls| {
                calls.look += 1;
                calls.presence += usize::from(presence.is_some());
            };
            let (store, answer) = self.enter(called).await?;
            let said = board_of(&store).look(system, presence, deadline).await;
            answer.give().await?;
            said
        }
        .boxed()
    }

    fn trip<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry> {
        through!(self, trip, board => board.trip(at, trip, deadline))
    }

    fn close<'a>(
        &'a self,
        at: At<'a>,
        opening: Option<&'a str>,
        reason: &'a str,
        deadline: Instant,
    ) -> StoreFuture<'a, Entry> {
        through!(self, close, board => board.close(at, opening, reason, deadline))
    }

    fn reopen<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry> {
        through!(self, reopen, board => board.reopen(at, trip, deadline))
    }

    fn lease<'a>(&'a self, at: At<'a>, opening: &'a str, ttl: Duration, deadline: Instant) -> StoreFuture<'a, Leased> {
        async move {
            let (store, answer) = self.enter(|calls| calls.lease += 1).await?;
            let leases = self.script().board.leases.clone();
            leases.give().await?;
            let said = board_of(&store).lease(at, opening, ttl, deadline).await;
            answer.give().await?;
            said
        }
        .boxed()
    }

    fn yield_lease<'a>(&'a self, at: At<'a>, deadline: Instant) -> StoreFuture<'a, bool> {
        through!(self, yield_lease, board => board.yield_lease(at, deadline))
    }

    fn hold<'a>(
        &'a self,
        system: &'a str,
        name: &'a str,
        hold: Option<&'a NewHold>,
        deadline: Instant,
    ) -> StoreFuture<'a, bool> {
        through!(self, hold, board => board.hold(system, name, hold, deadline))
    }

    fn changes<'a>(&'a self, system: &'a str, deadline: Instant) -> StoreFuture<'a, BoxStream<'static, ()>> {
        async move {
            let (answer, signals) = {
                let mut script = self.script();
                script.board.calls.changes += 1;
                (script.board.listen.clone(), script.board.signals.subscribe())
            };
            answer.give().await?;
            let changes = board_of(&self.behind()).changes(system, deadline).await?;
            let own = self.clone();
            let signals = stream::unfold(signals, |mut signals| async move {
                match signals.recv().await {
                    Ok(signal) => Some((signal, signals)),
                    // Whoever was late looks once for all that it has missed.
                    Err(RecvError::Lagged(_)) => Some((Signal::Push, signals)),
                    Err(RecvError::Closed) => None,
                }
            });
            let changes = changes.filter(move |()| future::ready(!own.script().board.loses_pushes));
            // A board that was forgotten ends its streams: so do those before it.
            let changes = changes
                .map(|()| Signal::Push)
                .chain(stream::once(future::ready(Signal::HangUp)));
            let both = stream::select(changes, signals);
            let until_the_end = both.take_while(|signal| future::ready(matches!(signal, Signal::Push)));
            Ok(until_the_end.map(|_| ()).boxed())
        }
        .boxed()
    }
}
