//! What a board does, without the store: the reference for all of them, and the embedded store's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use super::{
    ALIVE_FOR, At, Board, CLOSING_KEPT, Circuit, Closing, Entry, FORGOTTEN_AFTER, Hold, HoldState, Leased, NAME_KEPT,
    NewHold, Opening, Presence, Trip, WANTED_FOR,
};

/// The entries of one system. Times are milliseconds of the store's clock since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slate {
    instances: BTreeMap<String, u64>,
    names: BTreeMap<String, u64>,
    slots: BTreeMap<String, Slot>,
}

/// All about one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    circuit: Option<Record>,
    /// Instances whose own breaker has opened, and when their word ends.
    votes: BTreeMap<String, u64>,
    lease: Option<Lease>,
    /// Who would like the lease, and until when that is remembered.
    wanted: Option<(String, u64)>,
    hold: Option<Order>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Record {
    Open {
        id: String,
        round: u64,
        since: u64,
        until: u64,
        open_for: u64,
        failed_probes: u32,
        reason: String,
        by: String,
    },
    Closed {
        id: String,
        since: u64,
        reason: String,
        by: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    owner: String,
    until: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Order {
    state: HoldState,
    reason: String,
    author: String,
    since: u64,
    until: Option<u64>,
}

/// Whether the others are to be told.
pub(crate) type Changed = bool;

impl Slate {
    /// As [`BreakerBoard::look`](super::BreakerBoard::look).
    pub(crate) fn look(&mut self, now: u64, presence: Option<Presence<'_>>) -> Board {
        if let Some(Presence { instance, names }) = presence {
            self.seen(now, instance);
            for name in names {
                self.names.insert(name.clone(), now);
            }
        }
        self.slots.retain(|_, slot| {
            slot.age(now);
            *slot != Slot::default()
        });
        let mut names: BTreeSet<&str> = self.slots.keys().map(String::as_str).collect();
        let listed = self.names.iter().filter(|(_, seen)| now < *seen + millis(NAME_KEPT));
        names.extend(listed.map(|(name, _)| name.as_str()));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        Board {
            instances: self.alive(now),
            entries: names.iter().map(|name| self.entry(now, name)).collect(),
        }
    }

    /// As [`BreakerBoard::trip`](super::BreakerBoard::trip).
    pub(crate) fn trip(&mut self, now: u64, at: At<'_>, trip: &Trip<'_>) -> (Entry, Changed) {
        self.seen(now, at.instance);
        self.names.insert(at.name.to_owned(), now);
        let quorum = trip.quorum.min(self.alive(now).max(trip.fleet)).max(1);
        let slot = self.slot(now, at.name);
        let mut changed = false;
        if slot.hold.is_none() && !matches!(slot.circuit, Some(Record::Open { .. })) {
            slot.votes.insert(at.instance.to_owned(), now + millis(trip.window));
            if slot.votes.len() >= quorum as usize {
                slot.open(now, at.instance, trip, 0, now);
                changed = true;
            }
        }
        (self.entry(now, at.name), changed)
    }

    /// As [`BreakerBoard::close`](super::BreakerBoard::close).
    pub(crate) fn close(&mut self, now: u64, at: At<'_>, opening: Option<&str>, reason: &str) -> (Entry, Changed) {
        let slot = self.slot(now, at.name);
        slot.votes.remove(at.instance);
        let mut changed = false;
        if slot.is_leased_to_others(at.instance) {
            return (self.entry(now, at.name), false);
        }
        let had_lease = slot.lease.take().is_some();
        if let (Some(opening), None) = (opening, &slot.hold)
            && slot.is_present(opening)
        {
            slot.end(now, opening.to_owned(), reason, at.instance);
            changed = true;
        }
        (self.entry(now, at.name), changed || had_lease)
    }

    /// As [`BreakerBoard::reopen`](super::BreakerBoard::reopen).
    pub(crate) fn reopen(&mut self, now: u64, at: At<'_>, trip: &Trip<'_>) -> (Entry, Changed) {
        let slot = self.slot(now, at.name);
        if slot.is_leased_to_others(at.instance) {
            return (self.entry(now, at.name), false);
        }
        let had_lease = slot.lease.take().is_some();
        let mut changed = false;
        if slot.hold.is_none() && slot.is_present(trip.opening) {
            let since = match &slot.circuit {
                // Said once already, or of a probe long ago.
                Some(Record::Open { round, .. }) if *round != trip.round => None,
                Some(Record::Open { since, .. }) => Some(*since),
                _ => Some(trip.since.map_or(now, |since| unix_millis(since).min(now))),
            };
            if let Some(since) = since {
                slot.open(now, at.instance, trip, trip.round.saturating_add(1), since);
                changed = true;
            }
        }
        (self.entry(now, at.name), changed || had_lease)
    }

    /// As [`BreakerBoard::lease`](super::BreakerBoard::lease).
    pub(crate) fn lease(&mut self, now: u64, at: At<'_>, opening: &str, ttl: Duration) -> Leased {
        let slot = self.slot(now, at.name);
        let granted = if slot.hold.is_some() || !slot.is_present(opening) || slot.due_in(now) > 0 {
            false
        } else if slot.is_leased_to_others(at.instance) {
            slot.wanted = Some((at.instance.to_owned(), now + millis(WANTED_FOR)));
            false
        } else {
            slot.lease = Some(Lease {
                owner: at.instance.to_owned(),
                until: now + millis(ttl),
            });
            if slot.wanted.as_ref().is_some_and(|(who, _)| who == at.instance) {
                slot.wanted = None;
            }
            true
        };
        Leased {
            granted,
            entry: self.entry(now, at.name),
        }
    }

    /// As [`BreakerBoard::yield_lease`](super::BreakerBoard::yield_lease).
    pub(crate) fn yield_lease(&mut self, now: u64, at: At<'_>) -> (bool, Changed) {
        let slot = self.slot(now, at.name);
        let had_lease = slot.lease.take_if(|lease| lease.owner == at.instance).is_some();
        if had_lease {
            slot.wanted = None;
        }
        (had_lease, had_lease)
    }

    /// As [`BreakerBoard::hold`](super::BreakerBoard::hold).
    pub(crate) fn hold(&mut self, now: u64, name: &str, hold: Option<&NewHold>) -> (bool, Changed) {
        let slot = self.slot(now, name);
        let was_held = slot.hold.is_some();
        slot.hold = hold.map(|hold| Order {
            state: hold.state,
            reason: hold.reason.clone(),
            author: hold.author.clone(),
            since: now,
            until: hold.lasts.map(|lasts| now.saturating_add(millis(lasts))),
        });
        if let Some(hold) = hold {
            slot.votes.clear();
            slot.lease = None;
            slot.wanted = None;
            if let Some(Record::Open { id, .. }) = &slot.circuit {
                let reason = format!("held {}", hold.state);
                slot.end(now, id.clone(), &reason, &hold.author);
            }
            self.names.insert(name.to_owned(), now);
        }
        (was_held, was_held || hold.is_some())
    }

    fn seen(&mut self, now: u64, instance: &str) {
        self.instances.insert(instance.to_owned(), now);
    }

    fn alive(&mut self, now: u64) -> u32 {
        self.instances.retain(|_, seen| now < *seen + millis(ALIVE_FOR));
        u32::try_from(self.instances.len()).unwrap_or(u32::MAX)
    }

    /// The slot, without what time has taken.
    fn slot(&mut self, now: u64, name: &str) -> &mut Slot {
        let slot = self.slots.entry(name.to_owned()).or_default();
        slot.age(now);
        slot
    }

    fn entry(&mut self, now: u64, name: &str) -> Entry {
        let slot = self.slot(now, name);
        let entry = slot.entry(now, name);
        if *slot == Slot::default() {
            self.slots.remove(name);
        }
        entry
    }
}

impl Slot {
    fn age(&mut self, now: u64) {
        self.votes.retain(|_, until| now < *until);
        self.lease.take_if(|lease| lease.until <= now);
        self.wanted.take_if(|(_, until)| *until <= now);
        self.hold.take_if(|order| order.until.is_some_and(|until| until <= now));
        if let Some(Record::Open { until, open_for, .. }) = &mut self.circuit {
            // A clock that was set back must not keep it open for longer than it was to be, nor begin anew at every look.
            *until = (*until).min(now + *open_for);
        }
        self.circuit.take_if(|record| match record {
            Record::Open { until, .. } => *until + millis(FORGOTTEN_AFTER) <= now,
            Record::Closed { since, .. } => *since + millis(CLOSING_KEPT) <= now,
        });
    }

    /// Whether this may be the present opening: it is, or nothing is known.
    fn is_present(&self, opening: &str) -> bool {
        match &self.circuit {
            None => true,
            Some(Record::Open { id, .. }) => id == opening,
            Some(Record::Closed { .. }) => false,
        }
    }

    fn is_leased_to_others(&self, instance: &str) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.owner != instance)
    }

    fn due_in(&self, now: u64) -> u64 {
        match &self.circuit {
            Some(Record::Open { until, .. }) => until.saturating_sub(now),
            _ => 0,
        }
    }

    fn open(&mut self, now: u64, by: &str, trip: &Trip<'_>, round: u64, since: u64) {
        let open_for = millis(trip.open_for);
        self.votes.clear();
        self.lease = None;
        self.wanted = None;
        self.circuit = Some(Record::Open {
            id: trip.opening.to_owned(),
            round,
            since,
            until: now.saturating_add(open_for),
            open_for,
            failed_probes: trip.failed_probes,
            reason: trip.reason.to_owned(),
            by: by.to_owned(),
        });
    }

    fn end(&mut self, now: u64, id: String, reason: &str, by: &str) {
        self.votes.clear();
        self.wanted = None;
        self.circuit = Some(Record::Closed {
            id,
            since: now,
            reason: reason.to_owned(),
            by: by.to_owned(),
        });
    }

    fn entry(&self, now: u64, name: &str) -> Entry {
        Entry {
            name: name.to_owned(),
            circuit: match &self.circuit {
                None => Circuit::Unknown,
                Some(Record::Open {
                    id,
                    round,
                    since,
                    failed_probes,
                    reason,
                    by,
                    ..
                }) => Circuit::Open(Opening {
                    id: id.clone(),
                    round: *round,
                    since: time(*since),
                    due_in: Duration::from_millis(self.due_in(now)),
                    failed_probes: *failed_probes,
                    reason: reason.clone(),
                    by: by.clone(),
                }),
                Some(Record::Closed { id, since, reason, by }) => Circuit::Closed(Closing {
                    id: id.clone(),
                    since: time(*since),
                    reason: reason.clone(),
                    by: by.clone(),
                }),
            },
            hold: self.hold.as_ref().map(|order| Hold {
                state: order.state,
                reason: order.reason.clone(),
                author: order.author.clone(),
                since: time(order.since),
                ends_in: order
                    .until
                    .map(|until| Duration::from_millis(until.saturating_sub(now))),
            }),
            probing: self.lease.is_some(),
            wanted: self.wanted.is_some(),
        }
    }
}

/// At least one: a time that rounds to nothing would never be over.
fn millis(duration: Duration) -> u64 {
    // Sums of a few of these, and of a time of day, stay far below the end.
    const MOST: u64 = u64::MAX / 8;
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_or(MOST, |millis| millis.clamp(1, MOST))
}

fn time(unix_millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(unix_millis)
}

fn unix_millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
