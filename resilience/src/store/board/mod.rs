//! What instances tell each other of their breakers, as a store keeps it.
//!
//! A board belongs to a system (a team's services, say) and has one entry for each breaker's name. It is a register, not a
//! log: whoever reads it knows all that matters, whatever has been missed before. All times are the store's own; what
//! leaves it are durations, so that no clock of an instance matters.

mod slate;

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use futures_util::stream::BoxStream;
use tokio::time::Instant;

pub(crate) use self::slate::Slate;
use super::StoreFuture;

/// An opening that nobody has looked after for so long, counted from the end of its open time, is forgotten.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);
/// How long it is remembered that an opening has ended, so that whoever was cut off meanwhile learns it.
pub(crate) const CLOSING_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// An instance counts as alive for so long after it was last heard of. Longer than a degraded time: an outage of the store
/// makes nobody look dead, and one too many only raises the quorum.
pub(crate) const ALIVE_FOR: Duration = Duration::from_secs(60);
/// Who wants to probe is remembered for so long: the lease's idle holder makes way.
pub(crate) const WANTED_FOR: Duration = Duration::from_secs(3);
/// A name that no instance has had for so long is no longer listed.
pub(crate) const NAME_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The part of a [`Store`](super::Store) that carries breakers which instances share.
///
/// Every operation is one atomic decision by the store's clock. As for all others, `deadline` says until when an answer is of
/// use, and the caller drops the future at that instant.
///
/// # Errors
///
/// An error means that nothing is known about whether it took effect. All operations may be repeated: a second time changes
/// nothing that the first has done.
pub trait BreakerBoard: fmt::Debug + Send + Sync {
    /// Reads all entries of the system, and says who is here if `presence` is given. Without it, it writes nothing.
    fn look<'a>(&'a self, system: &'a str, presence: Option<Presence<'a>>, deadline: Instant)
    -> StoreFuture<'a, Board>;

    /// An instance's own breaker has opened: counts its vote, and opens for all if that makes the quorum.
    ///
    /// Changes nothing while there is an opening already, or while an operator holds the breaker.
    fn trip<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry>;

    /// A probe has succeeded: takes back the instance's vote, gives back its lease, and closes for all if the present
    /// opening is `opening`.
    ///
    /// Changes nothing more if the lease is somebody else's by now, or the opening another.
    fn close<'a>(
        &'a self,
        at: At<'a>,
        opening: Option<&'a str>,
        reason: &'a str,
        deadline: Instant,
    ) -> StoreFuture<'a, Entry>;

    /// A probe has failed: gives back the instance's lease, and opens `trip.opening` for another while.
    ///
    /// Changes nothing more if the lease is somebody else's by now, or another opening or round of it is present, or that one
    /// has been closed. An opening that the store has forgotten is written again.
    fn reopen<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry>;

    /// Asks for the lease of the one probe that an opening has, for `ttl`. The holder may ask again: that extends it.
    ///
    /// Refused while the opening is not due, or is not the present one, and while somebody else has the lease: that is
    /// remembered for some seconds, for the holder to see in its [entry](Entry::wanted). An opening that the store has forgotten has a lease all the same.
    fn lease<'a>(&'a self, at: At<'a>, opening: &'a str, ttl: Duration, deadline: Instant) -> StoreFuture<'a, Leased>;

    /// Gives the instance's lease back, if it still has it. Answers whether it had.
    ///
    /// Whoever gives it back has no probe under way, and begins none.
    fn yield_lease<'a>(&'a self, at: At<'a>, deadline: Instant) -> StoreFuture<'a, bool>;

    /// Holds a breaker open or closed on all instances, or (with `None`) lets go of it. Answers whether it was held before.
    ///
    /// A hold ends the present opening: whoever lets go of it finds a closed breaker.
    fn hold<'a>(
        &'a self,
        system: &'a str,
        name: &'a str,
        hold: Option<&'a NewHold>,
        deadline: Instant,
    ) -> StoreFuture<'a, bool>;

    /// Listens for changes of the system's entries: one item for each, which says only that it is worth looking.
    ///
    /// Ready when it listens; the stream ends when it no longer does.
    fn changes<'a>(&'a self, system: &'a str, deadline: Instant) -> StoreFuture<'a, BoxStream<'static, ()>>;
}

/// Whose breaker.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The system.
    pub system: &'a str,
    /// The breaker's name.
    pub name: &'a str,
    /// The instance that asks. No two have the same, not even one before and after its restart.
    pub instance: &'a str,
}

/// An instance, and the names of its breakers.
#[derive(Clone, Copy, Debug)]
pub struct Presence<'a> {
    /// The instance.
    pub instance: &'a str,
    /// Its breakers.
    pub names: &'a [String],
}

/// What an instance says of the opening of its own breaker.
#[derive(Clone, Copy, Debug)]
pub struct Trip<'a> {
    /// The opening, if it becomes one of all: never used before.
    pub opening: &'a str,
    /// How long it stays open before a probe.
    pub open_for: Duration,
    /// How many probes have failed since the circuit was last closed.
    pub failed_probes: u32,
    /// When it opened first, by the store's clock, if it is one that the store knew before.
    pub since: Option<SystemTime>,
    /// The [round](Opening::round) in which its probe has failed; 0 if it is new.
    pub round: u64,
    /// Why, for people.
    pub reason: &'a str,
    /// How many instances must say so before all open; as many as are alive, if those are fewer.
    pub quorum: u32,
    /// How many were alive when the instance looked last: a store that has lost its data knows of nobody, and must not take
    /// one for all.
    pub fleet: u32,
    /// For how long an instance's word counts.
    pub window: Duration,
}

/// What a board says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Instances that are alive.
    pub instances: u32,
    /// All entries, in no order. A name without one is closed, as far as is known.
    pub entries: Vec<Entry>,
}

/// What is known of one breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its last opening or closing.
    pub circuit: Circuit,
    /// What an operator has ordered.
    pub hold: Option<Hold>,
    /// Whether somebody has the lease of its probe.
    pub probing: bool,
    /// Whether somebody else has asked for it lately.
    pub wanted: bool,
}

/// An entry's opening, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Nothing is known: it has never opened, or that is forgotten.
    Unknown,
    /// What is written there cannot be read: it is broken, or a newer version's.
    Unreadable,
    /// Open for all.
    Open(Opening),
    /// Closed again.
    Closed(Closing),
}

/// An opening for all instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Tells this opening from all others.
    pub id: String,
    /// Changes each time that a probe has failed.
    pub round: u64,
    /// When it opened first, by the store's clock.
    pub since: SystemTime,
    /// How long until a probe is due; never more than its open time, whatever the store's clock has done.
    pub due_in: Duration,
    /// How many probes have failed.
    pub failed_probes: u32,
    /// Why.
    pub reason: String,
    /// The instance that opened it.
    pub by: String,
}

/// The end of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The opening that ended.
    pub id: String,
    /// When, by the store's clock.
    pub since: SystemTime,
    /// Why.
    pub reason: String,
    /// Who closed it.
    pub by: String,
}

/// What [`BreakerBoard::lease`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Whether the instance has the lease now.
    pub granted: bool,
    /// What is known of the breaker.
    pub entry: Entry,
}

/// An operator's order, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// Open or closed.
    pub state: HoldState,
    /// Why; may be empty.
    pub reason: String,
    /// Who says so; may be empty.
    pub author: String,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// How long it still lasts; `None` until it is released.
    pub ends_in: Option<Duration>,
}

/// An operator's order, as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHold {
    /// Open or closed.
    pub state: HoldState,
    /// Why.
    pub reason: String,
    /// Who says so.
    pub author: String,
    /// For how long; `None` until it is released.
    pub lasts: Option<Duration>,
}

/// In which state an operator holds a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// All calls are refused: maintenance.
    Open,
    /// All calls pass, whatever comes of them: a false alarm.
    Closed,
}

impl HoldState {
    /// The word for it: `open`, `closed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Entry {
    /// An entry of which nothing is known.
    #[must_use]
    pub fn unknown(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            circuit: Circuit::Unknown,
            hold: None,
            probing: false,
            wanted: false,
        }
    }
}
