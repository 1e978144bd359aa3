//! Whatever instances and operators do, both stores say the same.

use std::time::SystemTime;

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{TestCaseError, TestRunner},
};
use resilience::store::board::{Hold, Leased};

use super::*;

/// Times are so long that they never run out here, or have run out at the next step.
const INSTANT: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Step {
    Look(Option<&'static str>),
    Trip(&'static str, Own),
    Close(&'static str, Option<&'static str>),
    Reopen(&'static str, Own),
    Lease(&'static str, &'static str, Duration),
    Yield(&'static str),
    Hold(Option<(HoldState, Option<Duration>)>),
}

#[derive(Clone, Debug)]
struct Own {
    opening: &'static str,
    open_for: Duration,
    quorum: u32,
    window: Duration,
    failed_probes: u32,
    knows_since: bool,
    round: u64,
    fleet: u32,
}

/// What a step has said, without its times.
#[derive(Debug, PartialEq)]
enum Said {
    Board(u32, Vec<Entry>),
    Entry(Entry),
    Lease(bool, Entry),
    Truth(bool),
}

fn instance() -> impl Strategy<Value = &'static str> {
    select(&["a", "b", "c"][..])
}

fn opening_id() -> impl Strategy<Value = &'static str> {
    select(&["o", "p", "q"][..])
}

fn time() -> impl Strategy<Value = Duration> {
    select(&[INSTANT, HOUR][..])
}

/// Redis takes a lease of more than ten minutes for an error of its clock.
fn lease_time() -> impl Strategy<Value = Duration> {
    select(&[INSTANT, MINUTE][..])
}

fn own() -> impl Strategy<Value = Own> {
    (
        opening_id(),
        time(),
        0..4_u32,
        time(),
        0..3_u32,
        any::<bool>(),
        0..3_u64,
        0..4_u32,
    )
        .prop_map(
            |(opening, open_for, quorum, window, failed_probes, knows_since, round, fleet)| Own {
                opening,
                open_for,
                quorum,
                window,
                failed_probes,
                knows_since,
                round,
                fleet,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let state = select(&[HoldState::Open, HoldState::Closed][..]);
    prop_oneof![
        2 => proptest::option::of(instance()).prop_map(Step::Look),
        6 => (instance(), own()).prop_map(|(instance, own)| Step::Trip(instance, own)),
        4 => (instance(), proptest::option::of(opening_id())).prop_map(|(who, opening)| Step::Close(who, opening)),
        3 => (instance(), own()).prop_map(|(instance, own)| Step::Reopen(instance, own)),
        6 => (instance(), opening_id(), lease_time()).prop_map(|(who, opening, ttl)| Step::Lease(who, opening, ttl)),
        3 => instance().prop_map(Step::Yield),
        1 => proptest::option::of((state, proptest::option::of(time()))).prop_map(Step::Hold),
    ]
}

async fn take(subject: &Subject, system: &str, step: &Step) -> Said {
    let board = subject.board();
    let at = |instance| At {
        system,
        name: NAME,
        instance,
    };
    let trip = |own: &Own| Trip {
        opening: own.opening,
        open_for: own.open_for,
        failed_probes: own.failed_probes,
        round: own.round,
        fleet: own.fleet,
        since: own.knows_since.then_some(SystemTime::UNIX_EPOCH + HOUR),
        reason: "timeouts",
        quorum: own.quorum,
        window: own.window,
    };
    let said = match *step {
        Step::Look(instance) => {
            let names = [NAME.to_owned(), "search".to_owned()];
            let presence = instance.map(|instance| Presence {
                instance,
                names: &names,
            });
            let seen = board.look(system, presence, soon()).await.unwrap();
            let mut entries: Vec<Entry> = seen.entries.into_iter().map(timeless).collect();
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Said::Board(seen.instances, entries)
        }
        Step::Trip(instance, ref own) => {
            let entry = board.trip(at(instance), &trip(own), soon()).await.unwrap();
            Said::Entry(timeless(entry))
        }
        Step::Close(instance, opening) => {
            let entry = board.close(at(instance), opening, "healed", soon()).await.unwrap();
            Said::Entry(timeless(entry))
        }
        Step::Reopen(instance, ref own) => {
            let entry = board.reopen(at(instance), &trip(own), soon()).await.unwrap();
            Said::Entry(timeless(entry))
        }
        Step::Lease(instance, opening, ttl) => {
            let Leased { granted, entry } = board.lease(at(instance), opening, ttl, soon()).await.unwrap();
            Said::Lease(granted, timeless(entry))
        }
        Step::Yield(instance) => Said::Truth(board.yield_lease(at(instance), soon()).await.unwrap()),
        Step::Hold(order) => {
            let order = order.map(|(state, lasts)| NewHold { lasts, ..hold(state) });
            Said::Truth(board.hold(system, NAME, order.as_ref(), soon()).await.unwrap())
        }
    };
    subject.pass(2 * INSTANT).await;
    said
}

/// Leaves of each time whether it has come, and of a time of day whether it was the one that we said.
fn timeless(mut entry: Entry) -> Entry {
    let come = |time: Duration| time.min(INSTANT);
    let known = |time: SystemTime| time.min(SystemTime::UNIX_EPOCH + 2 * HOUR);
    // Forgotten after three seconds, of which a busy machine may take one for each step.
    entry.wanted = false;
    match &mut entry.circuit {
        Circuit::Open(opening) => {
            opening.due_in = come(opening.due_in);
            opening.since = known(opening.since);
        }
        Circuit::Closed(closing) => closing.since = known(closing.since),
        Circuit::Unknown | Circuit::Unreadable => {}
    }
    if let Some(Hold { since, ends_in, .. }) = &mut entry.hold {
        *since = known(*since);
        *ends_in = ends_in.map(come);
    }
    entry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_say_the_same() {
    let (redis, memory) = (Subject::redis().await, Subject::memory().await);
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Handle::current();
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let nth = std::cell::Cell::new(0);
        let agree = runner.run(&vec(step(), 1..40), |steps| {
            let system = format!("system-{}", nth.replace(nth.get() + 1));
            runtime.block_on(async {
                for (place, step) in steps.iter().enumerate() {
                    let (one, other) = (take(&redis, &system, step).await, take(&memory, &system, step).await);
                    prop_assert_eq!(one, other, "at step {}", place);
                }
                Ok::<_, TestCaseError>(())
            })
        });
        agree.unwrap_or_else(|error| panic!("{error}"));
    });
}
