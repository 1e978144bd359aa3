//! The state machine against a model that is plain enough to be read as the rules: one list, searched each time.

use std::task::Waker;

use proptest::prelude::*;

use super::super::{
    error::{Shed, ShedCounts},
    priority::Priority,
    state::{Answer, Arrival, State, Ticket},
};

#[derive(Clone, Debug)]
enum Step {
    Arrive(Priority, u64),
    Try,
    Poll(usize),
    Expire(usize),
    Leave(usize),
    Release,
    Advance(u64),
    Limit(u32),
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    priority: Priority,
    end: u64,
    answer: Option<Answer>,
    /// Has asked for its answer, or left.
    gone: bool,
}

#[derive(Debug)]
struct Model {
    limit: u32,
    in_flight: u32,
    queue: usize,
    now: u64,
    callers: Vec<Caller>,
    shed: ShedCounts,
}

impl Model {
    fn waiting(&self) -> Vec<usize> {
        let waits = |index: &usize| self.callers[*index].answer.is_none() && !self.callers[*index].gone;
        (0..self.callers.len()).filter(waits).collect()
    }

    fn count(&mut self, reason: Shed) -> Shed {
        match reason {
            Shed::QueueFull => self.shed.queue_full += 1,
            Shed::QueueTimeout => self.shed.queue_timeout += 1,
            Shed::Displaced => self.shed.displaced += 1,
        }
        reason
    }

    fn drop_spent(&mut self) {
        for index in self.waiting() {
            if self.callers[index].end <= self.now {
                self.callers[index].answer = Some(Err(self.count(Shed::QueueTimeout)));
            }
        }
    }

    fn hand_on(&mut self) {
        if self.waiting().is_empty() || self.in_flight >= self.limit {
            return;
        }
        self.drop_spent();
        while self.in_flight < self.limit {
            let waiting = self.waiting();
            let Some(next) = waiting
                .into_iter()
                .min_by_key(|index| (self.callers[*index].priority, *index))
            else {
                return;
            };
            self.callers[next].answer = Some(Ok(()));
            self.in_flight += 1;
        }
    }

    /// `Ok(true)` if it waits.
    fn arrive(&mut self, priority: Priority, end: u64) -> Result<bool, Shed> {
        if self.in_flight < self.limit {
            self.in_flight += 1;
            return Ok(false);
        }
        if self.queue == 0 {
            return Err(self.count(Shed::QueueFull));
        }
        if end <= self.now {
            return Err(self.count(Shed::QueueTimeout));
        }
        if self.waiting().len() == self.queue {
            self.drop_spent();
        }
        let waiting = self.waiting();
        if waiting.len() == self.queue {
            let last = waiting
                .into_iter()
                .max_by_key(|index| (self.callers[*index].priority, *index))
                .expect("the queue is full");
            if self.callers[last].priority <= priority {
                return Err(self.count(Shed::QueueFull));
            }
            self.callers[last].answer = Some(Err(self.count(Shed::Displaced)));
        }
        self.callers.push(Caller {
            priority,
            end,
            answer: None,
            gone: false,
        });
        Ok(true)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![
        Just(Priority::Critical),
        Just(Priority::Default),
        Just(Priority::Background)
    ];
    // Now and then a time at the end of the clock's range.
    let patience = prop_oneof![9 => 0..20_u64, 1 => Just(u64::MAX)];
    let step = prop_oneof![
        6 => (priority, patience).prop_map(|(priority, patience)| Step::Arrive(priority, patience)),
        1 => Just(Step::Try),
        2 => any::<usize>().prop_map(Step::Poll),
        1 => any::<usize>().prop_map(Step::Expire),
        2 => any::<usize>().prop_map(Step::Leave),
        4 => Just(Step::Release),
        2 => (0..15_u64).prop_map(Step::Advance),
        1 => (1..6_u32).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 0..200)
}

/// Makes the same step on both and compares what comes of it.
fn step(state: &mut State, model: &mut Model, tickets: &mut Vec<Ticket>, step: Step) {
    let now = model.now;
    match step {
        Step::Arrive(priority, patience) => {
            let end = now.saturating_add(patience);
            let expected = model.arrive(priority, end);
            match state.arrive(priority, now, end) {
                Ok(Arrival::Admitted) => assert_eq!(expected, Ok(false)),
                Ok(Arrival::Queued(ticket)) => {
                    assert_eq!(expected, Ok(true));
                    tickets.push(ticket);
                }
                Err(reason) => assert_eq!(expected, Err(reason)),
            }
        }
        Step::Try => {
            let free = model.in_flight < model.limit;
            model.in_flight += u32::from(free);
            assert_eq!(state.admit(), free);
        }
        Step::Poll(index) => {
            if let Some(index) = present(model, index) {
                let answer = state.poll(tickets[index], Waker::noop());
                assert_eq!(answer, model.callers[index].answer);
                model.callers[index].gone = answer.is_some();
            }
        }
        Step::Expire(index) => {
            if let Some(index) = present(model, index) {
                let expected = match model.callers[index].answer {
                    Some(answer) => answer,
                    None => Err(model.count(Shed::QueueTimeout)),
                };
                assert_eq!(state.expire(tickets[index]), expected);
                model.callers[index].gone = true;
            }
        }
        Step::Leave(index) => {
            if let Some(index) = present(model, index) {
                model.callers[index].gone = true;
                if model.callers[index].answer == Some(Ok(())) {
                    model.in_flight -= 1;
                    model.hand_on();
                }
                state.leave(tickets[index], || now);
            }
        }
        Step::Release => {
            // Only a place that somebody knows to hold.
            let unclaimed = model
                .callers
                .iter()
                .filter(|caller| caller.answer == Some(Ok(())) && !caller.gone);
            if model.in_flight as usize > unclaimed.count() {
                model.in_flight -= 1;
                model.hand_on();
                state.release(|| now);
            }
        }
        Step::Advance(by) => model.now += by,
        Step::Limit(limit) => {
            model.limit = limit;
            model.hand_on();
            state.set_limit(limit, || now);
        }
    }
}

/// One of the callers that are still there, by any number.
fn present(model: &Model, index: usize) -> Option<usize> {
    let present: Vec<_> = (0..model.callers.len())
        .filter(|index| !model.callers[*index].gone)
        .collect();
    (!present.is_empty()).then(|| present[index % present.len()])
}

proptest! {
    #[test]
    fn any_history_follows_the_rules(limit in 1..5_u32, queue in 0..6_u32, history in steps()) {
        let mut state = State::new(limit, queue, None);
        let mut model = Model {
            limit,
            in_flight: 0,
            queue: queue as usize,
            now: 1_000,
            callers: Vec::new(),
            shed: ShedCounts::default(),
        };
        let mut tickets = Vec::new();
        for next in history {
            let before = state.in_flight();
            step(&mut state, &mut model, &mut tickets, next);
            prop_assert_eq!(state.in_flight(), model.in_flight);
            prop_assert_eq!(state.queued(), model.waiting().len());
            prop_assert_eq!(state.shed(), model.shed);
            // Above the limit only while a smaller one waits for those in flight.
            prop_assert!(state.in_flight() <= state.limit().max(before));
            prop_assert!(state.queued() == 0 || state.in_flight() >= state.limit());
        }
        for (index, ticket) in tickets.into_iter().enumerate() {
            if !model.callers[index].gone {
                state.leave(ticket, || model.now);
            }
        }
        while state.in_flight() > 0 {
            state.release(|| model.now);
        }
        prop_assert!(state.is_idle(), "something was left behind: {state:?}");
    }
}
