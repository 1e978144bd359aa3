//! A fleet, its board and its dependency at one moment.

use std::time::Duration;

use crate::{
    breaker::{
        BreakerConfig, News, Order, Outcome, State,
        model::{Call, Circuit},
    },
    clock::nanos,
    sharing::replica::{Ask, Replica, Terms},
    store::board::{At, Circuit as OnBoard, Entry, Leased, Presence, Slate, Trip},
};

const NAME: &str = "payments";
const OPEN_FOR: Duration = Duration::from_secs(2);
const PROBE_LEASE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(30);
/// Shorter than a breaker's patience: no driver is starved for longer.
const TICK: Duration = Duration::from_millis(1_500);
const TERMS: Terms = Terms {
    probe_lease: PROBE_LEASE,
    window: WINDOW,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A call comes.
    Call(usize),
    /// The call that is under way ends as the dependency is.
    End(usize),
    /// Its caller goes.
    Drop(usize),
    /// The driver asks what there is to ask, or looks.
    Ask(usize),
    /// The board takes the question.
    Serve(usize),
    /// The answer is heard.
    Hear(usize),
    /// Time passes; not while a driver has not looked since it did last.
    Tick,
    /// The dependency breaks, or heals.
    Turn,
    /// The answer is lost, and whatever it was about may have been done.
    Lose(usize),
    /// The process is gone, and another begins.
    Crash(usize),
    /// The board cannot be reached by one, or can again.
    Cut(usize),
    /// The board forgets everything.
    Forget,
}

#[derive(Clone, Debug)]
struct Instance {
    id: String,
    circuit: Circuit,
    replica: Replica,
    call: Option<Call>,
    is_wanted: bool,
    question: Option<Question>,
    answer: Option<Answer>,
    has_looked: bool,
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
struct Question {
    /// `None` for a look.
    ask: Option<Ask>,
    news: News,
    at: u64,
}

#[derive(Clone, Debug)]
enum Answer {
    Entry(Entry),
    Leased(Leased),
    Yielded,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    now: u64,
    is_well: bool,
    turns_left: u8,
    pub(super) faults_left: u8,
    /// How often the board has forgotten who has leave.
    pub(super) forgotten: usize,
    slate: Slate,
    instances: Vec<Instance>,
    born: usize,
    story: Vec<Step>,
}

impl World {
    pub(super) fn new(instances: usize) -> Self {
        let mut world = Self {
            now: nanos(Duration::from_secs(1_000)),
            is_well: false,
            turns_left: 1,
            faults_left: 0,
            forgotten: 0,
            slate: Slate::default(),
            instances: Vec::new(),
            born: 0,
            story: Vec::new(),
        };
        for _ in 0..instances {
            let instance = world.instance();
            world.instances.push(instance);
        }
        (0..instances).for_each(|nth| world.settle(nth));
        world
    }

    fn instance(&mut self) -> Instance {
        self.born += 1;
        let config = BreakerConfig::default()
            .with_failures_in_a_row(1)
            .with_open_for(OPEN_FOR)
            .with_probe_lease(PROBE_LEASE);
        Instance {
            id: format!("i{}", self.born),
            circuit: Circuit::new(config),
            replica: Replica::default(),
            call: None,
            is_wanted: false,
            question: None,
            answer: None,
            has_looked: false,
            is_cut_off: false,
        }
    }

    /// All that can happen now.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (nth, instance) in self.instances.iter().enumerate() {
            match instance.call {
                None => steps.push(Step::Call(nth)),
                Some(call) => {
                    steps.push(Step::End(nth));
                    if call.is_probe() {
                        steps.push(Step::Drop(nth));
                    }
                }
            }
            match (&instance.question, &instance.answer) {
                (None, _) => steps.push(Step::Ask(nth)),
                (Some(_), None) => steps.push(Step::Serve(nth)),
                (Some(_), Some(_)) => steps.push(Step::Hear(nth)),
            }
            if self.faults_left > 0 {
                steps.extend([Step::Crash(nth), Step::Cut(nth)]);
                if instance.question.is_some() {
                    steps.push(Step::Lose(nth));
                }
            }
        }
        if self.instances.iter().all(|instance| instance.has_looked) {
            steps.push(Step::Tick);
        }
        if self.turns_left > 0 {
            steps.push(Step::Turn);
        }
        if self.faults_left > 0 {
            steps.push(Step::Forget);
        }
        steps
    }

    pub(super) fn take(&mut self, step: Step) {
        self.story.push(step);
        match step {
            Step::Call(nth) => self.call(nth),
            Step::End(nth) => self.end(
                nth,
                if self.is_well {
                    Outcome::Success
                } else {
                    Outcome::Failure
                },
            ),
            Step::Drop(nth) => self.end(nth, Outcome::Neutral),
            Step::Ask(nth) => self.ask(nth),
            Step::Serve(nth) => self.serve(nth),
            Step::Hear(nth) => self.hear(nth),
            Step::Tick => self.tick(TICK),
            Step::Turn => {
                self.is_well = !self.is_well;
                self.turns_left -= 1;
            }
            Step::Lose(nth) => {
                self.faults_left -= 1;
                self.fail(nth);
            }
            Step::Crash(nth) => {
                self.faults_left -= 1;
                self.instances[nth] = self.instance();
            }
            Step::Cut(nth) => {
                self.faults_left -= 1;
                self.instances[nth].is_cut_off ^= true;
            }
            Step::Forget => {
                self.faults_left -= 1;
                self.forgotten += 1;
                self.slate = Slate::default();
            }
        }
    }

    fn call(&mut self, nth: usize) {
        let now = self.now;
        let instance = &mut self.instances[nth];
        instance.call = instance.circuit.call(now);
        instance.is_wanted |= instance.call.is_none();
    }

    fn end(&mut self, nth: usize, outcome: Outcome) {
        let instance = &mut self.instances[nth];
        if let Some(call) = instance.call.take() {
            let before = instance.circuit.news(self.now);
            instance.circuit.end(call, outcome, self.now);
            let after = instance.circuit.news(self.now);
            let has_opened = before.state != State::Open && after.state == State::Open;
            assert!(
                !has_opened || instance.circuit.call(self.now).is_none(),
                "an opening refuses at once"
            );
        }
    }

    // The driver's steps: `Turns::speak`, `put`, `look` and `hear`, without the waiting.

    fn ask(&mut self, nth: usize) {
        let now = self.now;
        let instance = &mut self.instances[nth];
        let news = instance.circuit.news(now);
        if news.state == State::Closed {
            instance.is_wanted = false;
        }
        let ask = instance.replica.ask(&news, instance.is_wanted, now, &TERMS);
        if ask == Some(Ask::Yield) {
            if instance.circuit.obey(news.generation, Order::GiveUp, now).is_none() {
                return;
            }
            instance.replica.made_way(now);
            instance.is_wanted = false;
        }
        instance.question = Some(Question { ask, news, at: now });
        instance.answer = None;
    }

    fn serve(&mut self, nth: usize) {
        if self.instances[nth].is_cut_off {
            return self.fail(nth);
        }
        // The board's clock is its own.
        let now = self.now / 1_000_000 + 1_000_000_000;
        let Self { instances, slate, .. } = self;
        let instance = &mut instances[nth];
        let Some(Question { ask, news, .. }) = &instance.question else {
            return;
        };
        let at = At {
            system: "shop",
            name: NAME,
            instance: &instance.id,
        };
        let own = format!("{}-{}", instance.id, news.generation);
        let trip = |opening, round, since| Trip {
            opening,
            open_for: news.open_for.unwrap_or_default(),
            failed_probes: news.failed_probes,
            since,
            round,
            reason: "",
            quorum: 1,
            fleet: 1,
            window: WINDOW,
        };
        instance.answer = Some(match ask {
            None => {
                let names = [NAME.to_owned()];
                let presence = Presence {
                    instance: &instance.id,
                    names: &names,
                };
                let board = slate.look(now, Some(presence));
                Answer::Entry(board.entries.into_iter().next().expect("the name is listed"))
            }
            Some(Ask::Trip) => Answer::Entry(slate.trip(now, at, &trip(&own, 0, None)).0),
            Some(Ask::Reopen { opening, round, since }) => {
                Answer::Entry(slate.reopen(now, at, &trip(opening, *round, Some(*since))).0)
            }
            Some(Ask::Close { opening }) => Answer::Entry(slate.close(now, at, opening.as_deref(), "").0),
            Some(Ask::Lease { opening } | Ask::Keep { opening }) => {
                Answer::Leased(slate.lease(now, at, opening, TERMS.ttl()))
            }
            Some(Ask::Yield) => {
                slate.yield_lease(now, at);
                Answer::Yielded
            }
        });
    }

    fn hear(&mut self, nth: usize) {
        let now = self.now;
        let instance = &mut self.instances[nth];
        let (Some(Question { ask, news, at }), Some(answer)) = (instance.question.take(), instance.answer.take())
        else {
            return;
        };
        match answer {
            Answer::Yielded => {}
            Answer::Leased(leased) => {
                let order = instance.replica.leased(&leased, at, now, &TERMS);
                instance.circuit.obey(news.generation, order, now);
                instance.obey(&leased.entry, now);
            }
            Answer::Entry(entry) => {
                match ask {
                    None => {
                        instance.has_looked = true;
                        instance.replica.nudge();
                    }
                    Some(_) => instance.replica.told(news.generation),
                }
                instance.obey(&entry, now);
                let news = instance.circuit.news(now);
                if ask.is_none()
                    && let Some(order) = instance.replica.patience(&news, instance.is_wanted, now)
                {
                    instance.circuit.obey(news.generation, order, now);
                }
            }
        }
    }

    /// Nothing was heard: in the model every failure is the third in a row.
    fn fail(&mut self, nth: usize) {
        let now = self.now;
        let instance = &mut self.instances[nth];
        instance.question = None;
        instance.answer = None;
        instance.has_looked = true;
        let news = instance.circuit.news(now);
        if let Some(order) = instance.replica.unheard(&news, now, instance.is_cut_off)
            && let Some(generation) = instance.circuit.obey(news.generation, order, now)
        {
            instance.replica.went_on(order, generation);
        }
    }

    fn tick(&mut self, by: Duration) {
        self.now += nanos(by);
        for instance in &mut self.instances {
            instance.has_looked = false;
        }
    }

    // Situations and ends.

    /// One instance's driver says all that it has to say, and looks.
    fn settle(&mut self, nth: usize) {
        for _ in 0..8 {
            if self.instances[nth].question.is_none() {
                self.ask(nth);
            }
            let looks = self.instances[nth]
                .question
                .as_ref()
                .is_some_and(|question| question.ask.is_none());
            if self.instances[nth].answer.is_none() {
                self.serve(nth);
            }
            self.hear(nth);
            if looks {
                return;
            }
        }
    }

    pub(super) fn open_for_all(&mut self) {
        self.call(0);
        self.end(0, Outcome::Failure);
        (0..self.instances.len()).for_each(|nth| self.settle(nth));
        assert!(
            self.instances
                .iter()
                .all(|instance| instance.circuit.news(self.now).state == State::Open)
        );
    }

    pub(super) fn pass_until_due(&mut self) {
        self.tick(OPEN_FOR);
        (0..self.instances.len()).for_each(|nth| self.settle(nth));
    }

    pub(super) fn begin_probe(&mut self, nth: usize) {
        for _ in 0..4 {
            if self.instances[nth].call.is_none() {
                self.call(nth);
            }
            self.settle(nth);
        }
        assert!(self.instances[nth].call.is_some_and(Call::is_probe), "{}", self.story());
    }

    pub(super) fn heal(&mut self) {
        self.is_well = true;
        self.instances
            .iter_mut()
            .for_each(|instance| instance.is_cut_off = false);
    }

    /// Half a second in which everybody calls, is answered, and speaks with the board.
    pub(super) fn round(&mut self) {
        self.tick(Duration::from_millis(500));
        for nth in 0..self.instances.len() {
            self.end(nth, Outcome::Success);
            self.settle(nth);
            self.call(nth);
            self.settle(nth);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        let is_closed = |instance: &Instance| instance.circuit.news(self.now).state == State::Closed;
        self.instances.iter().all(is_closed)
    }

    pub(super) fn recovers_without_driver(&mut self, nth: usize) -> bool {
        // What the task's end does.
        self.instances[nth].circuit.part();
        for _ in 0..20 {
            self.now += nanos(Duration::from_millis(500));
            self.end(nth, Outcome::Success);
            self.call(nth);
        }
        self.instances[nth].circuit.news(self.now).state == State::Closed
    }

    // What is looked at.

    /// Probes that are out, and would count.
    pub(super) fn probes(&self) -> usize {
        let is_probing = |instance: &&Instance| instance.circuit.news(self.now).is_probing;
        self.instances.iter().filter(is_probing).count()
    }

    /// Those of them that have the board's leave.
    pub(super) fn leased_probes(&self) -> usize {
        let is_leased =
            |instance: &&Instance| instance.circuit.news(self.now).is_probing && instance.replica.has_lease(self.now);
        self.instances.iter().filter(is_leased).count()
    }

    /// All but the way that led here.
    pub(super) fn shown(&self) -> String {
        let Self {
            now,
            is_well,
            turns_left,
            faults_left,
            forgotten,
            slate,
            instances,
            ..
        } = self;
        format!("{now} {is_well} {turns_left} {faults_left} {forgotten} {slate:?} {instances:?}")
    }

    pub(super) fn story(&self) -> String {
        let states: Vec<_> = self
            .instances
            .iter()
            .map(|instance| instance.circuit.news(self.now))
            .collect();
        format!(
            "{:?}\n{states:#?}\n{:#?}\n{:#?}",
            self.story, self.slate, self.instances
        )
    }
}

impl Instance {
    fn obey(&mut self, entry: &Entry, now: u64) {
        assert!(!matches!(entry.circuit, OnBoard::Unreadable));
        loop {
            let news = self.circuit.news(now);
            let Some(step) = self.replica.hear(entry, &news, now) else {
                return;
            };
            let generation = match step.0 {
                None => news.generation,
                Some(order) => match self.circuit.obey(news.generation, order, now) {
                    Some(generation) => generation,
                    None => return,
                },
            };
            self.replica.obeyed(step, generation);
        }
    }
}
