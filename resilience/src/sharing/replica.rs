//! One breaker, as one instance shares it: what it has to tell the board, and what it makes of the board's answers.
//!
//! No IO, no clock, nothing that waits. Whoever drives it asks for [`ask`](Replica::ask), asks the board, and hands the
//! answer to [`hear`](Replica::hear). The circuit may change at any moment in between: an order names the generation that
//! it was given for, and what is believed changes only with an order that was obeyed.

use std::time::{Duration, SystemTime};

use crate::{
    breaker::{Cause, Held, News, Order, State},
    clock::nanos,
    store::board::{Circuit, Entry, HoldState, Leased, Opening},
};

/// An idle holder of a lease extends it so often, and then learns whether somebody else wants it.
pub(super) const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Whoever was refused a lease asks again after so long, unless it is told earlier.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);
/// An idle holder's own time doubles at most so often: to about a minute.
const MOST_IN_VAIN: u32 = 6;
/// A lease outlasts the probe that it is for by so long: the probe may start when part of it has gone.
const SPARE: Duration = Duration::from_secs(2);

/// What is believed of one breaker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    /// The generation of the circuit up to which the board knows everything.
    told: Option<u64>,
    belief: Belief,
    lease: Option<Lease>,
    /// Not before.
    ask_lease_at: u64,
    /// Leases of this round that were given away unused.
    in_vain: u32,
}

/// What the board has said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Belief {
    /// The present opening of all.
    opening: Option<Known>,
    /// When an operator's order ends by itself.
    hold_ends: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    id: String,
    round: u64,
    since: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    until: u64,
    /// When it is time to extend it, and to see whether somebody else wants it.
    keep_at: u64,
    since: u64,
    is_wanted: bool,
}

/// What is to be asked of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The circuit has opened, by itself.
    Trip,
    /// A probe has failed in this opening.
    Reopen {
        opening: String,
        round: u64,
        since: SystemTime,
    },
    /// A probe has succeeded, in this opening if it was one of all.
    Close { opening: Option<String> },
    /// May this instance probe?
    Lease { opening: String },
    /// It goes on wanting to.
    Keep { opening: String },
    /// Somebody else wants to: it gives the lease back, once the circuit has [given up](Order::GiveUp).
    Yield,
}

/// How the circuit's settings bear on what is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long a probe may take.
    pub(super) probe_lease: Duration,
    /// For how long an opening of this instance's is worth telling.
    pub(super) window: Duration,
}

impl Terms {
    /// How long a lease is asked for.
    pub(super) fn ttl(&self) -> Duration {
        self.probe_lease.saturating_add(SPARE)
    }
}

impl Replica {
    /// What to ask the board now; `wanted` says whether anybody here waits for the circuit to close.
    pub(super) fn ask(&mut self, news: &News, wanted: bool, now: u64, terms: &Terms) -> Option<Ask> {
        if news.held.is_some() {
            self.lease = None;
            self.told = Some(news.generation);
            return None;
        }
        if self.told != Some(news.generation) {
            if let Some(ask) = self.untold(news, now, terms) {
                return Some(ask);
            }
            self.told = Some(news.generation);
        }
        self.probe(news, wanted, now)
    }

    /// What has happened here and is not known there.
    fn untold(&self, news: &News, now: u64, terms: &Terms) -> Option<Ask> {
        let is_fresh = now <= news.opened_at.saturating_add(nanos(terms.window));
        match (news.state, news.cause?) {
            (State::Open, Cause::ProbeFailed | Cause::ProbeSlow) => match &self.belief.opening {
                Some(known) => is_fresh.then(|| Ask::Reopen {
                    opening: known.id.clone(),
                    round: known.round,
                    since: known.since,
                }),
                None => is_fresh.then_some(Ask::Trip),
            },
            (State::Open, Cause::FailuresInARow(_) | Cause::FailureRate { .. } | Cause::SlowCalls { .. }) => {
                is_fresh.then_some(Ask::Trip)
            }
            (State::Closed, Cause::ProbesSucceeded(_)) => Some(Ask::Close {
                opening: self.belief.opening.as_ref().map(|known| known.id.clone()),
            }),
            _ => None,
        }
    }

    /// What the next probe of a shared opening needs.
    fn probe(&mut self, news: &News, wanted: bool, now: u64) -> Option<Ask> {
        self.lease.take_if(|lease| lease.until <= now);
        let known = self.belief.opening.as_ref()?;
        match (news.state, self.lease) {
            (State::Closed, _) => None,
            (_, Some(_)) if news.is_probing => None,
            (_, Some(lease)) if lease.is_wanted => Some(Ask::Yield),
            (_, Some(lease)) => (lease.keep_at <= now).then(|| Ask::Keep {
                opening: known.id.clone(),
            }),
            _ => {
                let is_due = news.due_at <= now && self.ask_lease_at <= now;
                (is_due && wanted && !news.is_probing).then(|| Ask::Lease {
                    opening: known.id.clone(),
                })
            }
        }
    }

    /// The order, while the board answers and nobody here has a reason to ask it for leave: an opening of all waits for
    /// whoever does. Its patience would end in a quiet time, and all first callers after that would probe.
    ///
    /// With a caller it is the answer about the lease that counts: without one, patience ends.
    pub(super) fn patience(&self, news: &News, wanted: bool, now: u64) -> Option<Order> {
        let is_shared = self.belief.opening.is_some() && news.held.is_none() && !news.is_alone;
        let is_due = news.state != State::Closed && !news.is_probing && news.due_at <= now;
        (is_shared && is_due && !wanted && self.lease.is_none()).then_some(Order::Wait)
    }

    /// When [`ask`](Self::ask) may have something to say though nothing has happened.
    pub(super) fn wakes_at(&self, news: &News, wanted: bool) -> Option<u64> {
        let probe = match (&self.belief.opening, self.lease, news.state) {
            (None, _, _) | (_, _, State::Closed) => None,
            (_, Some(lease), _) if news.is_probing => Some(lease.until),
            (_, Some(lease), _) if lease.is_wanted => Some(0),
            (_, Some(lease), _) => Some(lease.keep_at),
            (_, None, _) if !wanted => None,
            (_, None, _) if news.is_probing => None,
            (_, None, _) => Some(news.due_at.max(self.ask_lease_at)),
        };
        match (probe, self.belief.hold_ends) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The board has answered what is no lease: it knows all up to this generation.
    pub(super) fn told(&mut self, generation: u64) {
        self.told = Some(generation);
        self.lease = None;
    }

    /// The board has answered [`Ask::Lease`] or [`Ask::Keep`], which was asked at `asked_at`. The order.
    pub(super) fn leased(&mut self, leased: &Leased, asked_at: u64, now: u64, terms: &Terms) -> Order {
        if !leased.granted {
            return self.unleased(now);
        }
        // From when it was asked for: the board's own time for it ends later.
        let until = asked_at.saturating_add(nanos(terms.ttl()));
        let since = self.lease.map_or(now, |lease| lease.since);
        // Whoever has it may use it first, for longer each time that it came to nothing: calls that are dealt out in turn
        // would else always meet the instance that has just made way.
        let own_time = nanos(KEEP_EVERY) << self.in_vain.min(MOST_IN_VAIN);
        self.lease = Some(Lease {
            until,
            keep_at: now.saturating_add(nanos(KEEP_EVERY)),
            since,
            is_wanted: leased.entry.wanted && now.saturating_sub(since) >= own_time,
        });
        Order::Probe { until }
    }

    /// The lease was given away, and nobody had used it.
    pub(super) fn made_way(&mut self, now: u64) {
        self.in_vain = self.in_vain.saturating_add(1);
        self.unleased(now);
    }

    /// The lease is not, or no longer, this instance's. The order.
    pub(super) fn unleased(&mut self, now: u64) -> Order {
        self.lease = None;
        self.ask_lease_at = now.saturating_add(nanos(ASK_AGAIN));
        Order::Wait
    }

    #[cfg(test)]
    pub(super) fn has_lease(&self, now: u64) -> bool {
        self.lease.is_some_and(|lease| now < lease.until)
    }

    /// Something has changed on the board: it is worth asking for the lease.
    pub(super) fn nudge(&mut self) {
        self.ask_lease_at = 0;
    }

    /// What the board's entry asks of the circuit. To be called again once that is [obeyed](Self::obeyed), until there is
    /// nothing more.
    pub(super) fn hear(&mut self, entry: &Entry, news: &News, now: u64) -> Option<Step> {
        let held = entry.hold.as_ref().map(|hold| match hold.state {
            HoldState::Open => Held::Open,
            HoldState::Closed => Held::Closed,
        });
        if let Some(hold) = &entry.hold {
            let belief = Belief {
                opening: None,
                hold_ends: hold.ends_in.map(|ends_in| now.saturating_add(nanos(ends_in))),
            };
            if held == news.held {
                // The same order as before may have another end.
                self.belief = belief;
                return None;
            }
            return Some(Step(held.map(Order::Hold), belief));
        }
        if news.held.is_some() {
            return Some(Step(Some(Order::Release), Belief::default()));
        }
        if self.told != Some(news.generation) {
            // The board does not know yet what has happened here.
            return None;
        }
        match &entry.circuit {
            Circuit::Open(opening) => self.follow(opening, news),
            Circuit::Closed(_) if self.belief.opening.is_some() => Some(Step(
                (news.state != State::Closed).then_some(Order::Close),
                Belief::default(),
            )),
            // Somebody who is newer knows what that means: here it is everybody for himself.
            Circuit::Unreadable if self.belief.opening.is_some() => Some(Step(
                (news.state != State::Closed).then_some(Order::Alone),
                Belief::default(),
            )),
            Circuit::Closed(_) | Circuit::Unknown | Circuit::Unreadable => {
                let is_own_business = self.belief.opening.is_none() && news.state != State::Closed && !news.is_alone;
                is_own_business.then(|| Step(Some(Order::Alone), self.belief.clone()))
            }
        }
    }

    fn follow(&self, opening: &Opening, news: &News) -> Option<Step> {
        let known = Known {
            id: opening.id.clone(),
            round: opening.round,
            since: opening.since,
        };
        let order = Order::Open {
            due_in: nanos(opening.due_in),
            failed_probes: opening.failed_probes,
        };
        let belief = Belief {
            opening: Some(known),
            hold_ends: None,
        };
        if belief.opening != self.belief.opening || news.state == State::Closed {
            return Some(Step(Some(order), belief));
        }
        match news.state {
            // It went on alone while nobody could be asked.
            State::Open if news.is_alone => Some(Step(Some(order), belief)),
            State::HalfOpen if news.is_alone && !news.is_probing => Some(Step(Some(Order::Wait), belief)),
            _ => None,
        }
    }

    /// An order was obeyed, and this is the circuit's generation now.
    pub(super) fn obeyed(&mut self, step: Step, generation: u64) {
        let Step(_, belief) = step;
        if belief.opening != self.belief.opening {
            self.lease = None;
            self.ask_lease_at = 0;
            self.in_vain = 0;
        }
        self.belief = belief;
        self.told = Some(generation);
    }

    /// What to do without the board: an operator's order may end, and if nobody can be asked it is everybody for himself.
    pub(super) fn unheard(&self, news: &News, now: u64, is_cut_off: bool) -> Option<Order> {
        if news.held.is_some() {
            return self
                .belief
                .hold_ends
                .is_some_and(|ends| ends <= now)
                .then_some(Order::Release);
        }
        let has_lease = self.lease.is_some_and(|lease| now < lease.until);
        (is_cut_off && news.state != State::Closed && !news.is_alone && !has_lease).then_some(Order::Alone)
    }

    /// The circuit has done what [`unheard`](Self::unheard) said, and this is its generation now.
    pub(super) fn went_on(&mut self, order: Order, generation: u64) {
        if order == Order::Release {
            self.belief = Belief::default();
            self.told = Some(generation);
        }
    }
}

/// What to do, and what to believe once it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step(pub(super) Option<Order>, Belief);
