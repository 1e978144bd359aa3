//! Hand-written cases.

mod properties;

use super::*;

const MINUTE: u64 = 60_000;
const NOON: u64 = 1_000 * MINUTE;
/// Two places that attempts come from.
const HOME: u64 = 7;
const AWAY: u64 = 8;

fn lockout(attempts: u32, minutes: &[u64]) -> Lockout {
    Lockout {
        id: "login".to_owned(),
        attempts,
        durations: minutes
            .iter()
            .map(|minutes| Duration::from_secs(minutes * 60))
            .collect(),
    }
}

fn attempt(lockout: &Lockout, id: u64, origin: u64) -> Attempt<'_> {
    Attempt {
        lockout,
        subject: "ada",
        id,
        origin,
    }
}

fn start(tally: &mut Tally, lockout: &Lockout, now: u64, id: u64, origin: u64) -> Begun {
    begin(std::slice::from_mut(tally), &[attempt(lockout, id, origin)], now)[0]
}

fn end(tally: &mut Tally, lockout: &Lockout, now: u64, id: u64, origin: u64, settle: Settle) -> bool {
    tally.settle(&Rule::of(lockout), now, &attempt(lockout, id, origin), settle)
}

/// An attempt that fails at once if it may begin.
fn guess(tally: &mut Tally, lockout: &Lockout, now: u64, id: u64, origin: u64) -> Begun {
    let begun = start(tally, lockout, now, id, origin);
    if begun.is_allowed() {
        end(tally, lockout, now, id, origin, Settle::Fail);
    }
    begun
}

fn lock(begun: Begun) -> Option<Duration> {
    match begun.refused {
        Some(Refused::Locked { retry_after }) => Some(retry_after),
        _ => None,
    }
}

#[test]
fn the_failure_that_reaches_the_limit_locks() {
    let (lockout, mut tally) = (lockout(3, &[15]), Tally::default());
    for (id, remaining) in [(1, 2), (2, 1), (3, 0)] {
        assert!(!tally.is_locked());
        let begun = guess(&mut tally, &lockout, NOON, id, HOME);
        assert_eq!((begun.is_allowed(), begun.remaining), (true, remaining));
    }
    let refused = guess(&mut tally, &lockout, NOON + MINUTE, 4, HOME);
    assert_eq!(refused.remaining, 0);
    assert_eq!(lock(refused), Some(Duration::from_secs(14 * 60)));
}

#[test]
fn attempts_under_way_lock_nothing_and_let_no_more_than_the_limit_in() {
    let (lockout, mut tally) = (lockout(2, &[15]), Tally::default());
    for id in [1, 2] {
        assert!(start(&mut tally, &lockout, NOON, id, HOME).is_allowed());
    }
    let under_way = |millis| {
        let retry_after = Duration::from_millis(millis);
        Some(Refused::UnderWay { retry_after })
    };
    let refused = start(&mut tally, &lockout, NOON, 3, AWAY);
    assert_eq!((refused.refused, refused.remaining), (under_way(1_000), 0));
    assert_eq!(
        start(&mut tally, &lockout, NOON + LEASE - 7, 3, AWAY).refused,
        under_way(7)
    );
    end(&mut tally, &lockout, NOON, 1, HOME, Settle::Clear);
    end(&mut tally, &lockout, NOON, 2, HOME, Settle::Clear);
    assert_eq!(tally, Tally::default());
}

#[test]
fn an_attempt_that_is_never_settled_fails_when_its_lease_ends() {
    let (lockout, mut tally) = (lockout(2, &[15]), Tally::default());
    start(&mut tally, &lockout, NOON, 1, HOME);
    start(&mut tally, &lockout, NOON + 1, 2, HOME);
    // Looked at long after: the lock began when the second lease ended.
    let later = NOON + 10 * MINUTE;
    let left = 15 * MINUTE + LEASE + 1 - 10 * MINUTE;
    assert_eq!(
        lock(start(&mut tally, &lockout, later, 3, HOME)),
        Some(Duration::from_millis(left))
    );
    // It has succeeded after all.
    assert!(end(&mut tally, &lockout, later, 2, AWAY, Settle::Clear));
    assert_eq!((tally.is_locked(), tally.locks, tally.failed.len()), (false, 0, 1));
}

#[test]
fn a_lock_that_began_and_ended_unseen_is_over_and_remembered() {
    let (lockout, mut tally) = (lockout(1, &[1, 5]), Tally::default());
    start(&mut tally, &lockout, NOON, 1, HOME);
    let later = NOON + LEASE + 2 * MINUTE;
    assert!(guess(&mut tally, &lockout, later, 2, HOME).is_allowed());
    assert_eq!(
        lock(start(&mut tally, &lockout, later, 3, HOME)),
        Some(Duration::from_secs(5 * 60))
    );
}

#[test]
fn a_success_removes_failures_of_its_own_origin_only() {
    let (lockout, mut tally) = (lockout(5, &[15]), Tally::default());
    for id in 0..2 {
        guess(&mut tally, &lockout, NOON, id, HOME);
        guess(&mut tally, &lockout, NOON, 10 + id, AWAY);
    }
    start(&mut tally, &lockout, NOON, 20, HOME);
    end(&mut tally, &lockout, NOON, 20, HOME, Settle::Clear);
    let origins: Vec<_> = tally.failed.iter().map(|entry| entry.origin).collect();
    assert_eq!((origins, tally.pending.len()), (vec![AWAY; 2], 0));
    // An attempt of no origin clears itself alone.
    for none in [NO_ORIGIN, MIXED] {
        guess(&mut tally, &lockout, NOON, 30, none);
        start(&mut tally, &lockout, NOON, 31, none);
        end(&mut tally, &lockout, NOON, 31, none, Settle::Clear);
        assert_eq!((tally.failed.len(), tally.pending.len()), (3, 0));
        end(&mut tally, &lockout, NOON, 30, none, Settle::GiveBack);
    }
}

#[test]
fn a_success_leaves_attempts_under_way_of_its_origin_counted() {
    let (lockout, mut tally) = (lockout(2, &[15]), Tally::default());
    start(&mut tally, &lockout, NOON, 1, HOME);
    start(&mut tally, &lockout, NOON, 2, HOME);
    end(&mut tally, &lockout, NOON, 1, HOME, Settle::Clear);
    end(&mut tally, &lockout, NOON, 2, HOME, Settle::Fail);
    assert_eq!((tally.failed.len(), tally.pending.len()), (1, 0));
}

#[test]
fn the_history_is_forgotten_only_if_all_locks_came_from_the_origin_of_the_success() {
    for (second, remembered) in [(HOME, 0), (AWAY, 2)] {
        let (lockout, mut tally) = (lockout(1, &[1, 5, 15]), Tally::default());
        guess(&mut tally, &lockout, NOON, 1, HOME);
        guess(&mut tally, &lockout, NOON + MINUTE, 2, second);
        let later = NOON + 6 * MINUTE;
        assert!(start(&mut tally, &lockout, later, 3, HOME).is_allowed());
        end(&mut tally, &lockout, later, 3, HOME, Settle::Clear);
        assert_eq!(tally.locks, remembered, "{second}");
    }
}

#[test]
fn a_lock_of_mixed_failures_is_forgotten_by_no_success() {
    let (lockout, mut tally) = (lockout(2, &[1, 5]), Tally::default());
    guess(&mut tally, &lockout, NOON, 1, HOME);
    guess(&mut tally, &lockout, NOON, 2, AWAY);
    for origin in [HOME, AWAY] {
        let later = NOON + MINUTE;
        assert!(start(&mut tally, &lockout, later, origin, origin).is_allowed());
        end(&mut tally, &lockout, later, origin, origin, Settle::Clear);
        assert_eq!(tally.locks, 1);
    }
}

#[test]
fn attempts_during_a_lock_do_not_extend_it() {
    let (lockout, mut tally) = (lockout(1, &[15]), Tally::default());
    assert!(guess(&mut tally, &lockout, NOON, 1, HOME).is_allowed());
    for minute in 0..15 {
        assert!(!guess(&mut tally, &lockout, NOON + minute * MINUTE, 2, HOME).is_allowed());
    }
    assert!(guess(&mut tally, &lockout, NOON + 15 * MINUTE, 3, HOME).is_allowed());
}

#[test]
fn locks_last_longer_each_time_and_are_forgotten_at_last() {
    let (lockout, mut tally) = (lockout(1, &[1, 5, 15]), Tally::default());
    let mut now = NOON;
    for minutes in [1, 5, 15, 15] {
        assert!(guess(&mut tally, &lockout, now, 1, HOME).is_allowed());
        let wait = lock(guess(&mut tally, &lockout, now, 2, HOME));
        assert_eq!(wait, Some(Duration::from_secs(minutes * 60)));
        now += minutes * MINUTE;
    }
    now += 15 * MINUTE;
    assert!(guess(&mut tally, &lockout, now, 1, HOME).is_allowed());
    assert_eq!(
        lock(guess(&mut tally, &lockout, now, 2, HOME)),
        Some(Duration::from_secs(60))
    );
}

#[test]
fn an_attempt_that_is_given_back_lifts_the_lock_that_came_of_it() {
    let (lockout, mut tally) = (lockout(2, &[1, 5]), Tally::default());
    guess(&mut tally, &lockout, NOON, 1, HOME);
    guess(&mut tally, &lockout, NOON, 2, HOME);
    assert!(tally.is_locked());
    end(&mut tally, &lockout, NOON, 1, HOME, Settle::GiveBack);
    assert_eq!((tally.is_locked(), tally.locks, tally.failed.len()), (false, 0, 1));
    // And again: it stays the first lock.
    assert!(guess(&mut tally, &lockout, NOON, 3, HOME).is_allowed());
    assert_eq!(
        lock(guess(&mut tally, &lockout, NOON, 4, HOME)),
        Some(Duration::from_secs(60))
    );
}

#[test]
fn an_attempt_that_is_settled_after_its_lock_changes_nothing() {
    let (lockout, mut tally) = (lockout(1, &[1, 5]), Tally::default());
    guess(&mut tally, &lockout, NOON, 1, HOME);
    let later = NOON + MINUTE;
    assert!(guess(&mut tally, &lockout, later, 2, HOME).is_allowed());
    let before = tally.clone();
    for settle in [Settle::GiveBack, Settle::Fail] {
        assert!(!end(&mut tally, &lockout, later, 1, HOME, settle));
        assert_eq!(tally, before);
    }
}

#[test]
fn a_clock_that_steps_back_locks_nobody_for_longer() {
    let (lockout, mut tally) = (lockout(1, &[15]), Tally::default());
    let back = NOON - 600 * MINUTE;
    guess(&mut tally, &lockout, NOON, 1, HOME);
    let refused = guess(&mut tally, &lockout, back, 2, HOME);
    assert_eq!(lock(refused), Some(Duration::from_secs(15 * 60)));
    let mut tally = Tally::default();
    start(&mut tally, &lockout, NOON, 1, HOME);
    assert!(!start(&mut tally, &lockout, back, 2, HOME).is_allowed());
    assert!(lock(start(&mut tally, &lockout, back + LEASE, 2, HOME)).is_some());
}
