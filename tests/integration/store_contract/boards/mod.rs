//! What instances tell each other of their breakers.

mod alike;
mod holds;
mod leases;
mod openings;
mod presence;

use futures_util::StreamExt;
use resilience::store::{
    BreakerBoard,
    board::{At, Board, Circuit, Closing, Entry, HoldState, NewHold, Opening, Presence, Trip},
};

use super::*;

pub(super) use self::{holds::*, leases::*, openings::*, presence::*};

const HOUR: Duration = Duration::from_secs(60 * 60);
const SYSTEM: &str = "payments-team";
const NAME: &str = "payments";

/// `instance`'s breaker.
fn at(instance: &str) -> At<'_> {
    At {
        system: SYSTEM,
        name: NAME,
        instance,
    }
}

/// A trip that opens for all at once, for an hour.
fn trip(opening: &str) -> Trip<'_> {
    Trip {
        opening,
        open_for: HOUR,
        failed_probes: 0,
        since: None,
        round: 0,
        reason: "5 failures in a row",
        quorum: 1,
        fleet: 0,
        window: HOUR,
    }
}

fn hold(state: HoldState) -> NewHold {
    NewHold {
        state,
        reason: "a new database".to_owned(),
        author: "ada".to_owned(),
        lasts: None,
    }
}

fn opening(entry: &Entry) -> &Opening {
    match &entry.circuit {
        Circuit::Open(opening) => opening,
        other => panic!("not open but {other:?}"),
    }
}

fn closing(entry: &Entry) -> &Closing {
    match &entry.circuit {
        Circuit::Closed(closing) => closing,
        other => panic!("not closed but {other:?}"),
    }
}

impl Subject {
    fn board(&self) -> &dyn BreakerBoard {
        self.store.board().expect("it carries boards")
    }

    /// What anybody sees.
    async fn look(&self) -> Board {
        self.board().look(SYSTEM, None, soon()).await.unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let entries = self.look().await.entries;
        let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    /// What anybody sees of the breaker.
    async fn entry(&self) -> Entry {
        let entries = self.look().await.entries;
        let entry = entries.into_iter().find(|entry| entry.name == NAME);
        entry.unwrap_or_else(|| Entry::unknown(NAME))
    }

    /// Says that these instances are here, with the breaker.
    async fn arrive(&self, instances: &[&str]) {
        let names = [NAME.to_owned()];
        for instance in instances {
            let presence = Presence {
                instance,
                names: &names,
            };
            self.board().look(SYSTEM, Some(presence), soon()).await.unwrap();
        }
    }

    async fn trip(&self, instance: &str, trip: Trip<'_>) -> Entry {
        self.board().trip(at(instance), &trip, soon()).await.unwrap()
    }

    /// Opens for all, due at once.
    async fn open_due(&self, opening: &str) {
        let open_for = Duration::from_millis(1);
        let entry = self
            .trip(
                "a",
                Trip {
                    open_for,
                    ..trip(opening)
                },
            )
            .await;
        assert!(matches!(entry.circuit, Circuit::Open(_)), "{entry:?}");
        self.pass(2 * open_for).await;
    }

    async fn close(&self, instance: &str, opening: &str) -> Entry {
        let closed = self
            .board()
            .close(at(instance), Some(opening), "a probe succeeded", soon());
        closed.await.unwrap()
    }

    async fn reopen(&self, instance: &str, trip: Trip<'_>) -> Entry {
        self.board().reopen(at(instance), &trip, soon()).await.unwrap()
    }

    /// Whether it is granted.
    async fn lease(&self, instance: &str, opening: &str, ttl: Duration) -> bool {
        let leased = self.board().lease(at(instance), opening, ttl, soon()).await.unwrap();
        assert!(leased.entry.probing || !leased.granted);
        leased.granted
    }

    async fn yield_lease(&self, instance: &str) -> bool {
        self.board().yield_lease(at(instance), soon()).await.unwrap()
    }

    async fn hold(&self, hold: Option<NewHold>) -> bool {
        self.board().hold(SYSTEM, NAME, hold.as_ref(), soon()).await.unwrap()
    }
}
