//! Clients that the store has refused, remembered for the wait that it gave: a flood of them costs it nothing.

use std::{
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quick_cache::{Equivalent, sync::Cache};
use tokio::time::Instant;

use crate::store::{Take, Taken};

/// When a wait is over, one request asks the store. Others of the flood are refused meanwhile, for at most this long: all of
/// them would ask for the room of one.
const RENEWAL: Duration = Duration::from_millis(50);

/// What the store has refused, and until when a retry would be refused too.
///
/// A wait counts from the instant at which the question was asked, which is before the store looked: no request is
/// refused after the wait that its client was told. Whatever is forgotten before costs one question more.
pub(crate) struct Blocked {
    /// `None` remembers nobody.
    refusals: Option<Cache<Refused, Refusal>>,
    epoch: Instant,
    /// When the last wait of all ends, in nanoseconds since the epoch. While it is past there is nothing to look up.
    horizon: AtomicU64,
}

/// A claim that was refused. A cheaper one may pass, and what was refused by other limits says nothing of these: limits
/// that were changed since, and those of handlers that share a name, but not its numbers, which no id tells apart.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Refused {
    quota: String,
    client: String,
    cost: u32,
    numbers: Numbers,
    version: u64,
}

/// What decides whether there is room, and is not part of every quota's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Numbers {
    limit: u32,
    burst: u32,
}

/// A [`Refused`] that is looked up. Its fields come in the same order, so that it has the same hash.
#[derive(Hash)]
struct Asked<'a> {
    quota: &'a str,
    client: &'a str,
    cost: u32,
    numbers: Numbers,
    version: u64,
}

impl<'a> Asked<'a> {
    fn of(take: &Take<'a>, version: u64) -> Self {
        Self {
            quota: &take.quota.id,
            client: take.client,
            cost: take.cost,
            numbers: Numbers::of(take),
            version,
        }
    }
}

impl Numbers {
    fn of(take: &Take<'_>) -> Self {
        Self {
            limit: take.quota.limit,
            burst: take.quota.burst,
        }
    }
}

impl Equivalent<Refused> for Asked<'_> {
    fn equivalent(&self, refused: &Refused) -> bool {
        self.client == refused.client
            && self.quota == refused.quota
            && self.cost == refused.cost
            && self.numbers == refused.numbers
            && self.version == refused.version
    }
}

#[derive(Clone, Debug)]
struct Refusal {
    remaining: u32,
    /// When a retry passes.
    until: Instant,
    reset: Instant,
    /// Until when others wait for the request that asks after that, in nanoseconds since the epoch; 0 for none yet.
    renewed_until: Arc<AtomicU64>,
}

impl Blocked {
    /// Remembers so many claims, or none.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            refusals: (capacity > 0).then(|| Cache::new(capacity)),
            epoch: Instant::now(),
            horizon: AtomicU64::new(0),
        }
    }

    /// Whether no claim can be refused at `now` without a question.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.nanos(now) >= self.horizon.load(Ordering::Relaxed)
    }

    /// Notes what the store has said to a claim, under the limits of this `version`, when asked at `asked`. A claim that took
    /// the last of a quota is noted too: the next one is refused for the wait that this answer names.
    pub(crate) fn learn(&self, take: &Take<'_>, version: u64, asked: Instant, taken: &Taken) {
        let Some(refusals) = &self.refusals else { return };
        let is_last = taken.remaining < take.cost && !taken.retry_after.is_zero();
        let end = |wait: Duration| asked.checked_add(wait).filter(|_| !taken.allowed || is_last);
        let (Some(until), Some(reset)) = (end(taken.retry_after), end(taken.reset)) else {
            return self.forget(take, version, asked);
        };
        let refused = Refused {
            quota: take.quota.id.clone(),
            client: take.client.to_owned(),
            cost: take.cost,
            numbers: Numbers::of(take),
            version,
        };
        let refusal = Refusal {
            remaining: taken.remaining,
            until,
            reset,
            renewed_until: Arc::default(),
        };
        refusals.insert(refused, refusal);
        // While one request asks for all, there is something to look up.
        self.horizon.fetch_max(self.nanos(until + RENEWAL), Ordering::Relaxed);
    }

    /// Forgets a refusal whose wait was over at `asked`: the store has told of room since, or nothing.
    pub(crate) fn forget(&self, take: &Take<'_>, version: u64, asked: Instant) {
        if let Some(refusals) = &self.refusals
            && !self.is_idle(asked)
        {
            refusals.remove_if(&Asked::of(take, version), |refusal| refusal.until <= asked);
        }
    }

    /// What the store would say to a claim at `now`, if it is known to refuse.
    pub(crate) fn recall(&self, take: &Take<'_>, version: u64, now: Instant) -> Option<Taken> {
        let refusal = self.refusals.as_ref()?.get(&Asked::of(take, version))?;
        let until = match refusal.until {
            until if now < until => until,
            _ => self.renewal(&refusal, now)?,
        };
        Some(Taken {
            allowed: false,
            remaining: refusal.remaining,
            retry_after: until - now,
            reset: refusal.reset.max(until) - now,
        })
    }

    /// Until when the request that asks the store is waited for; `None` for that request itself.
    fn renewal(&self, refusal: &Refusal, now: Instant) -> Option<Instant> {
        let (at, end) = (self.nanos(now), self.nanos(now + RENEWAL));
        let claim = |until: u64| (until <= at).then_some(end);
        match refusal
            .renewed_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim)
        {
            Ok(_) => None,
            Err(until) => Some(self.epoch + Duration::from_nanos(until)).filter(|until| now < *until),
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocked")
            .field("len", &self.refusals.as_ref().map_or(0, Cache::len))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Algorithm, store::Quota};

    const MINUTE: Duration = Duration::from_secs(60);
    const TICK: Duration = Duration::from_millis(1);

    fn quota(id: &str) -> Quota {
        Quota {
            id: id.into(),
            limit: 5,
            window: MINUTE,
            algorithm: Algorithm::SlidingWindow,
            burst: 5,
        }
    }

    fn refused(retry_after: Duration) -> Taken {
        Taken {
            allowed: false,
            remaining: 2,
            retry_after,
            reset: retry_after + TICK,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_its_wait_and_not_a_moment_longer() {
        let blocked = Blocked::new(10);
        let (quota, asked) = (quota("q"), Instant::now());
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        assert!(blocked.is_idle(asked));
        blocked.learn(&take, 0, asked, &refused(MINUTE));
        let just_before = asked + MINUTE - TICK;
        assert!(!blocked.is_idle(just_before));
        assert_eq!(blocked.recall(&take, 0, just_before), Some(refused(TICK)));
        assert_eq!(blocked.recall(&take, 0, asked + MINUTE), None);
        assert!(blocked.is_idle(asked + MINUTE + RENEWAL));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_wait_one_request_asks_for_all() {
        let blocked = Blocked::new(10);
        let (quota, asked) = (quota("q"), Instant::now());
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        blocked.learn(&take, 0, asked, &refused(MINUTE));
        let over = asked + MINUTE;
        assert_eq!(blocked.recall(&take, 0, over), None, "the first asks");
        for _ in 0..1_000 {
            let waits = blocked.recall(&take, 0, over + TICK).expect("the others wait for it");
            assert_eq!((waits.allowed, waits.retry_after), (false, RENEWAL - TICK));
        }
        // It has gone without an answer: another one asks.
        let later = over + RENEWAL;
        blocked.learn(&take, 1, asked, &refused(2 * MINUTE));
        assert_eq!(blocked.recall(&take, 0, later), None);
        assert!(blocked.recall(&take, 0, later + TICK).is_some());
        // It is told of room: none waits any more.
        let room = Taken {
            allowed: true,
            remaining: 1,
            retry_after: Duration::ZERO,
            reset: MINUTE,
        };
        blocked.learn(&take, 0, later, &room);
        assert_eq!(blocked.recall(&take, 0, later + TICK), None);
        assert_eq!(blocked.recall(&take, 0, later + TICK), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_older_than_a_refusal_does_not_undo_it() {
        let blocked = Blocked::new(10);
        let (quota, asked) = (quota("q"), Instant::now());
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        blocked.learn(&take, 0, asked + TICK, &refused(MINUTE));
        let room = Taken {
            allowed: true,
            remaining: 1,
            retry_after: Duration::ZERO,
            reset: MINUTE,
        };
        blocked.learn(&take, 0, asked, &room);
        assert!(blocked.recall(&take, 0, asked + 2 * TICK).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_claim_that_takes_the_last_is_the_last() {
        let blocked = Blocked::new(10);
        let (quota, asked) = (quota("q"), Instant::now());
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        let last = Taken {
            allowed: true,
            remaining: 0,
            retry_after: MINUTE,
            reset: MINUTE,
        };
        blocked.learn(&take, 0, asked, &last);
        let next = blocked
            .recall(&take, 0, asked + TICK)
            .expect("the store would refuse it");
        assert_eq!(
            (next.allowed, next.remaining, next.retry_after),
            (false, 0, MINUTE - TICK)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_of_one_quota_with_its_numbers_one_client_one_cost_and_one_version() {
        let blocked = Blocked::new(10);
        let (one, other, now) = (quota("q"), quota("r"), Instant::now());
        let higher = Quota { limit: 6, ..quota("q") };
        let larger = Quota { burst: 6, ..quota("q") };
        let take = |quota, client, cost| Take { quota, client, cost };
        blocked.learn(&take(&one, "a", 2), 7, now, &refused(MINUTE));
        assert!(blocked.recall(&take(&one, "a", 2), 7, now).is_some());
        for (take, version) in [
            (take(&other, "a", 2), 7),
            (take(&higher, "a", 2), 7),
            (take(&larger, "a", 2), 7),
            (take(&one, "b", 2), 7),
            (take(&one, "a", 1), 7),
            (take(&one, "a", 2), 8),
        ] {
            assert_eq!(blocked.recall(&take, version, now), None, "{take:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_passed_and_what_never_ends_is_not_remembered() {
        let blocked = Blocked::new(10);
        let (quota, now) = (quota("q"), Instant::now());
        let take = Take {
            quota: &quota,
            client: "a",
            cost: 1,
        };
        let allowed = Taken {
            allowed: true,
            retry_after: Duration::ZERO,
            ..refused(MINUTE)
        };
        blocked.learn(&take, 0, now, &allowed);
        blocked.learn(&take, 0, now, &refused(Duration::MAX - TICK));
        assert!(blocked.is_idle(now));
        let nobody = Blocked::new(0);
        nobody.learn(&take, 0, now, &refused(MINUTE));
        assert!(nobody.is_idle(now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_million_clients_take_no_more_room_than_it_has() {
        let blocked = Blocked::new(1_000);
        let (quota, now) = (quota("q"), Instant::now());
        for client in 0..1_000_000 {
            let take = Take {
                quota: &quota,
                client: &format!("ip:{client}"),
                cost: 1,
            };
            blocked.learn(&take, 0, now, &refused(MINUTE));
        }
        let len = blocked.refusals.as_ref().expect("it remembers").len();
        assert!((500..=1_200).contains(&len), "{len}");
    }
}
