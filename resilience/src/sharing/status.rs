use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use crate::{
    breaker::State,
    store::board::{Circuit, Entry, Hold, HoldState},
};

/// How a shared breaker stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Open, half-open (a probe is out, or may go), or closed.
    ///
    /// Of a [`SharedBreaker`](super::SharedBreaker): as its calls find it here and now. In a list: as the store has it for
    /// all instances.
    #[serde(serialize_with = "word")]
    pub state: State,
    /// Since when, by the store's clock; `None` if it has not changed for a day, as far as the store knows.
    #[serde(serialize_with = "timestamp")]
    pub since: Option<SystemTime>,
    /// Why.
    pub reason: Option<String>,
    /// The instance that opened or closed it, or the author of the order that holds it.
    pub by: Option<String>,
    /// How long until a probe is due; `None` while it is closed or held.
    #[serde(rename = "probe_in_ms", serialize_with = "optional_millis")]
    pub probe_in: Option<Duration>,
    /// What an operator has ordered.
    #[serde(rename = "override", serialize_with = "order")]
    pub hold: Option<Hold>,
}

impl Status {
    /// A breaker of which nobody has told anything: closed.
    #[must_use]
    pub fn closed(name: impl Into<String>) -> Self {
        Self::of(&Entry::unknown(name))
    }

    /// As the store has it for all instances.
    pub(crate) fn of(entry: &Entry) -> Self {
        let (state, since, reason, by, probe_in) = match &entry.circuit {
            Circuit::Unknown | Circuit::Unreadable => (State::Closed, None, None, None, None),
            Circuit::Closed(closing) => (
                State::Closed,
                Some(closing.since),
                Some(closing.reason.clone()),
                Some(closing.by.clone()),
                None,
            ),
            Circuit::Open(opening) => (
                if entry.probing { State::HalfOpen } else { State::Open },
                Some(opening.since),
                Some(opening.reason.clone()),
                Some(opening.by.clone()),
                Some(opening.due_in),
            ),
        };
        let status = Self {
            name: entry.name.clone(),
            state,
            since,
            reason,
            by,
            probe_in,
            hold: entry.hold.clone(),
        };
        match &entry.hold {
            None => status,
            Some(hold) => Self {
                state: match hold.state {
                    HoldState::Open => State::Open,
                    HoldState::Closed => State::Closed,
                },
                since: Some(hold.since),
                reason: Some(hold.reason.clone()),
                by: Some(hold.author.clone()),
                probe_in: None,
                ..status
            },
        }
    }
}

fn word<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

fn timestamp<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(rfc3339).serialize(serializer)
}

fn optional_millis<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(millis).serialize(serializer)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct Order<'a> {
    state: &'static str,
    reason: &'a str,
    author: &'a str,
    since: String,
    ends_in_ms: Option<u64>,
}

fn order<S: Serializer>(hold: &Option<Hold>, serializer: S) -> Result<S::Ok, S::Error> {
    let order = hold.as_ref().map(|hold| Order {
        state: hold.state.as_str(),
        reason: &hold.reason,
        author: &hold.author,
        since: rfc3339(hold.since),
        ends_in_ms: hold.ends_in.map(millis),
    });
    order.serialize(serializer)
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
