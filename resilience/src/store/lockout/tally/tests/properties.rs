//! Properties, and a comparison with a naive reference.

use proptest::prelude::*;

use super::*;

/// An attempt that was let in: when, its id and origin, and when and how it was settled.
type Event = (u64, u64, u64, Option<(u64, Settle)>);

/// A naive reference: every event is kept, and every answer is worked out anew.
#[derive(Clone, Debug, Default)]
struct History {
    /// Attempts that were let in.
    begun: Vec<Event>,
    /// When, and of which origin, an attempt succeeded.
    successes: Vec<(u64, u64)>,
}

/// The state at some moment.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    failed: Vec<(u64, u64)>,
    locks: u32,
    locked_until: u64,
    remembered_until: u64,
    origins: Vec<u64>,
}

impl History {
    fn pending(&self, now: u64) -> usize {
        let is_pending = |(at, _, _, end): &&Event| end.is_none() && at + LEASE > now;
        self.begun.iter().filter(is_pending).count()
    }

    /// Plays everything from the beginning. Failures that are given back are the subject of other tests.
    fn state(&self, attempts: usize, durations: &[u64], now: u64) -> State {
        let longest = *durations.last().expect("not empty");
        let mut events: Vec<(u64, u8, u64, u64)> = Vec::new();
        for &(at, id, origin, end) in &self.begun {
            match end {
                Some((ended, Settle::Fail)) if ended < at + LEASE => events.push((ended, 1, id, origin)),
                Some((ended, _)) if ended < at + LEASE => {}
                _ => events.push((at + LEASE, 0, id, origin)),
            }
        }
        events.extend(self.successes.iter().map(|&(at, origin)| (at, 1, u64::MAX, origin)));
        events.sort_by_key(|&(at, rank, ..)| (at, rank));
        let mut state = State::default();
        let run_out = |state: &mut State, now: u64| {
            if state.locked_until != 0 && state.locked_until <= now {
                state.locked_until = 0;
                state.failed.clear();
            }
            if state.locked_until == 0 && state.remembered_until <= now {
                (state.locks, state.remembered_until, state.origins) = (0, 0, vec![]);
            }
            if state.locked_until == 0 {
                state.failed.retain(|(at, _)| at + longest > now);
            }
        };
        for (at, _, id, origin) in events.into_iter().filter(|(at, ..)| *at <= now) {
            run_out(&mut state, at);
            if id == u64::MAX {
                state.failed.retain(|(_, failed)| *failed != origin);
                if state.locked_until != 0 && state.failed.len() < attempts {
                    state.locked_until = 0;
                    state.locks -= 1;
                }
                if state.locks == 0 || state.origins.iter().all(|of| *of == origin) {
                    (state.locks, state.remembered_until, state.origins) = (0, 0, vec![]);
                }
                continue;
            }
            state.failed.push((at, origin));
            if state.failed.len() == attempts {
                let duration = durations[(state.locks as usize).min(durations.len() - 1)];
                state.locked_until = at + duration;
                state.remembered_until = at + duration + longest;
                state.origins.extend(state.failed.iter().map(|(_, origin)| *origin));
                state.locks += 1;
            }
        }
        run_out(&mut state, now);
        state
    }
}

proptest! {
    #[test]
    fn every_answer_is_that_of_a_naive_reader_of_the_history(
        attempts in 1_u32..5,
        minutes in prop::collection::btree_set(1_u64..8, 1..4),
        steps in prop::collection::vec((0_u64..MINUTE, 0_u8..8, 0_usize..4, 1_u64..4), 1..60),
    ) {
        let minutes: Vec<_> = minutes.into_iter().collect();
        let lockout = lockout(attempts, &minutes);
        let millis: Vec<_> = minutes.iter().map(|minutes| minutes * MINUTE).collect();
        let (mut tally, mut history, mut now) = (Tally::default(), History::default(), NOON);
        for (id, (step, what, which, origin)) in (0..).zip(steps) {
            now += step;
            let open: Vec<_> = (0..history.begun.len()).filter(|&nth| {
                let (at, _, _, end) = history.begun[nth];
                end.is_none() && at + LEASE > now
            }).collect();
            match open.get(which) {
                Some(&nth) if what < 5 => {
                    let (_, id, origin, _) = history.begun[nth];
                    let settle = [Settle::Fail, Settle::Fail, Settle::Fail, Settle::GiveBack, Settle::Clear][usize::from(what)];
                    end(&mut tally, &lockout, now, id, origin, settle);
                    history.begun[nth].3 = Some((now, settle));
                    if settle == Settle::Clear {
                        history.successes.push((now, origin));
                    }
                }
                _ => {
                    let state = history.state(attempts as usize, &millis, now);
                    let pending = history.pending(now);
                    let begun = start(&mut tally, &lockout, now, id, origin);
                    if state.locked_until != 0 {
                        let wait = Duration::from_millis(state.locked_until - now);
                        prop_assert_eq!(begun.refused, Some(Refused::Locked { retry_after: wait }));
                    } else if state.failed.len() + pending >= attempts as usize {
                        let is_busy = matches!(begun.refused, Some(Refused::UnderWay { .. }));
                        prop_assert!(is_busy, "{:?}", begun);
                    } else {
                        prop_assert!(begun.is_allowed());
                        prop_assert_eq!(begun.remaining as usize, attempts as usize - state.failed.len() - pending - 1);
                        history.begun.push((now, id, origin, None));
                    }
                }
            }
            let state = history.state(attempts as usize, &millis, now);
            let status = tally.status(now);
            prop_assert_eq!(status.attempts as usize, state.failed.len());
            prop_assert_eq!(status.pending as usize, history.pending(now));
            prop_assert_eq!(status.locks, state.locks);
        }
    }

    #[test]
    fn whatever_happens_no_more_than_the_limit_is_kept_and_waits_are_enough(
        attempts in 1_u32..5,
        minutes in prop::collection::btree_set(1_u64..8, 1..4),
        steps in prop::collection::vec((0_u64..2 * MINUTE, 0_u8..10, 0_u64..8, 0_u64..4), 1..80),
    ) {
        let minutes: Vec<_> = minutes.into_iter().collect();
        let lockout = lockout(attempts, &minutes);
        let rule = Rule::of(&lockout);
        let limit = attempts as usize;
        let (mut tally, mut now) = (Tally::default(), NOON);
        for (nth, (step, what, back, origin)) in (0..).zip(steps) {
            now += step;
            let earlier = nth - back.min(nth);
            match what {
                0 => _ = end(&mut tally, &lockout, now, earlier, origin, Settle::Clear),
                1 => _ = end(&mut tally, &lockout, now, earlier, origin, Settle::GiveBack),
                2..=4 => _ = end(&mut tally, &lockout, now, earlier, origin, Settle::Fail),
                _ => {
                    let begun = start(&mut tally, &lockout, now, nth, origin);
                    if let Some(wait) = begun.refused.map(|refused| refused.retry_after().as_millis() as u64) {
                        prop_assert!(wait >= 1);
                        let at = |time| {
                            let mut later = tally.clone();
                            later.advance(&rule, time);
                            later.is_locked()
                        };
                        match lock(begun) {
                            Some(_) => prop_assert!(!at(now + wait) && at(now + wait - 1)),
                            None => prop_assert!(wait <= BUSY_WAIT && now + wait <= tally.pending[0].at + LEASE),
                        }
                    }
                }
            }
            prop_assert!(tally.failed.len() + tally.pending.len() <= limit);
            prop_assert_eq!(tally.is_locked(), tally.failed.len() == limit);
            prop_assert!(tally.locks > 0 || tally.origin == NO_ORIGIN);
            prop_assert!(tally.failed.is_sorted_by_key(|entry| entry.at));
            prop_assert!(tally.pending.is_sorted_by_key(|entry| entry.at));
            prop_assert!(tally == Tally::default() || tally.expires(&rule) > now);
            let mut at_expiry = tally.clone();
            at_expiry.advance(&rule, tally.expires(&rule));
            prop_assert_eq!(at_expiry, Tally::default());
        }
    }


    #[test]
    fn no_success_removes_a_failure_of_another_origin(
        steps in prop::collection::vec((0_u64..1_000, any::<bool>(), 1_u64..4), 1..60),
    ) {
        let lockout = lockout(1_000, &[8]);
        let (mut tally, mut now) = (Tally::default(), NOON);
        for (id, (step, succeeds, origin)) in (0..).zip(steps) {
            now += step;
            start(&mut tally, &lockout, now, id, origin);
            let others = |tally: &Tally| tally.failed.iter().filter(|entry| entry.origin != origin).count();
            let before = others(&tally);
            end(&mut tally, &lockout, now, id, origin, if succeeds { Settle::Clear } else { Settle::Fail });
            prop_assert_eq!(others(&tally), before);
            let own = tally.failed.iter().filter(|entry| entry.origin == origin).count();
            prop_assert!(!succeeds || own == 0);
        }
    }
}
