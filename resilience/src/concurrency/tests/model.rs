//! The state beside a plain list of who waits.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use proptest::prelude::*;

use super::super::{
    overloaded::Shed,
    priority::Priority,
    state::{Called, Place, State, Wakers},
};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Somebody comes, who will wait for so long.
    Come(Priority, u64),
    /// One who waits looks whether it was called.
    Look(usize),
    /// One who waits, or was called and has not looked, goes.
    Go(usize),
    /// One who is in leaves.
    Leave,
    /// Time passes.
    Pass(u64),
    Limit(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![
        Just(Priority::Critical),
        Just(Priority::Default),
        Just(Priority::Background)
    ];
    prop_oneof![
        4 => (priority, 0_u64..30).prop_map(|(priority, wait)| Step::Come(priority, wait)),
        3 => any::<usize>().prop_map(Step::Look),
        1 => any::<usize>().prop_map(Step::Go),
        3 => Just(Step::Leave),
        1 => (0_u64..20).prop_map(Step::Pass),
        1 => (1_u32..6).prop_map(Step::Limit),
    ]
}

/// Somebody who waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    place: Place,
    priority: Priority,
    until: u64,
    /// What it will be told, if it was called.
    called: Option<Called>,
}

/// What the state should do: everybody in one list, in the order in which they came.
#[derive(Debug)]
struct Model {
    limit: u32,
    in_flight: u32,
    places: usize,
    waiters: Vec<Waiter>,
    now: u64,
}

impl Model {
    fn queued(&self) -> impl Iterator<Item = usize> {
        (0..self.waiters.len()).filter(|&index| self.waiters[index].called.is_none())
    }

    /// Lets in whoever is next, for as long as there is room.
    fn admit(&mut self) {
        while self.in_flight < self.limit {
            // Of those of one priority the first that came: `min_by_key` takes the first of equals.
            let Some(next) = self.queued().min_by_key(|&index| self.waiters[index].priority) else {
                return;
            };
            let waiter = &mut self.waiters[next];
            waiter.called = Some(if self.now < waiter.until {
                self.in_flight += 1;
                Called::Granted
            } else {
                Called::Shed(Shed::QueueTimeout)
            });
        }
    }

    /// Whether somebody may come in at once, wait, or neither.
    fn come(&mut self, priority: Priority) -> Result<bool, Shed> {
        if self.in_flight < self.limit && self.queued().next().is_none() {
            self.in_flight += 1;
            return Ok(true);
        }
        if self.queued().count() >= self.places {
            // The last of equals: the newest.
            let lowest = self.queued().max_by_key(|&index| self.waiters[index].priority);
            match lowest.filter(|&index| self.waiters[index].priority > priority) {
                Some(index) => self.waiters[index].called = Some(Called::Shed(Shed::Displaced)),
                None => return Err(Shed::QueueFull),
            }
        }
        Ok(false)
    }
}

struct Quiet;

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

proptest! {
    #[test]
    fn the_state_does_what_a_plain_list_does(
        limit in 1_u32..5,
        places in 0_u32..5,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let base = tokio::time::Instant::now();
        let at = |ms: u64| base + Duration::from_millis(ms);
        let waker = Waker::from(Arc::new(Quiet));
        let cx = Context::from_waker(&waker);
        let mut state = State::new(limit, places);
        let mut model = Model { limit, in_flight: 0, places: places as usize, waiters: Vec::new(), now: 0 };
        let mut shed = BTreeMap::new();
        for step in steps {
            let mut wakers = Wakers::new();
            let now = model.now;
            match step {
                Step::Come(priority, wait) => {
                    let until = now + wait;
                    let expected = model.come(priority);
                    let came = if state.try_enter() {
                        Ok(None)
                    } else {
                        state.enqueue(priority, at(until), &mut wakers).map(Some)
                    };
                    match (came, expected) {
                        (Ok(None), Ok(true)) => {}
                        (Ok(Some(place)), Ok(false)) => {
                            // It looks once, as a future does when it is polled for the first time.
                            prop_assert_eq!(state.poll(place, &cx), None);
                            model.waiters.push(Waiter { place, priority, until, called: None });
                        }
                        (Err(reason), Err(expected)) => {
                            prop_assert_eq!(reason, expected);
                            *shed.entry(reason.as_str()).or_insert(0) += 1;
                        }
                        (came, expected) => prop_assert!(false, "{came:?}, not {expected:?}"),
                    }
                }
                Step::Look(index) if !model.waiters.is_empty() => {
                    let index = index % model.waiters.len();
                    let waiter = model.waiters[index];
                    let told = state.poll(waiter.place, &cx);
                    prop_assert_eq!(told, waiter.called);
                    if told.is_some() {
                        model.waiters.remove(index);
                    }
                }
                Step::Go(index) if !model.waiters.is_empty() => {
                    let index = index % model.waiters.len();
                    let waiter = model.waiters.remove(index);
                    let left = state.leave(waiter.place);
                    prop_assert_eq!(left, waiter.called);
                    if left == Some(Called::Granted) {
                        state.exit(|| at(now), &mut wakers);
                        model.in_flight -= 1;
                        model.admit();
                    }
                }
                Step::Leave => {
                    // Those who were granted a slot and have not looked hold theirs.
                    let unaware = model.waiters.iter().filter(|waiter| waiter.called == Some(Called::Granted));
                    if model.in_flight > unaware.count() as u32 {
                        state.exit(|| at(now), &mut wakers);
                        model.in_flight -= 1;
                        model.admit();
                    }
                }
                Step::Pass(ms) => model.now += ms,
                Step::Limit(limit) => {
                    model.limit = limit;
                    state.set_limit(limit, || at(now), &mut wakers);
                    model.admit();
                }
                Step::Look(_) | Step::Go(_) => {}
            }
            prop_assert_eq!(state.in_flight(), model.in_flight);
            prop_assert_eq!(state.queued() as usize, model.queued().count());
        }
        // Whoever goes leaves nothing behind.
        let mut wakers = Wakers::new();
        let now = model.now;
        for waiter in std::mem::take(&mut model.waiters) {
            if state.leave(waiter.place) == Some(Called::Granted) {
                state.exit(|| at(now), &mut wakers);
            }
        }
        while state.in_flight() > 0 {
            state.exit(|| at(now), &mut wakers);
        }
        prop_assert_eq!(state.queued(), 0);
        prop_assert!(state.is_empty());
        prop_assert!(shed.get("queue_full").is_none_or(|count| state.shed(Shed::QueueFull) == *count));
    }
}
