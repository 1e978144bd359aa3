//! Locks that are remembered for a moment.

use super::*;
use crate::store::Lockout;

const LOCK: Duration = Duration::from_secs(900);
const TICK: Duration = Duration::from_millis(1);

fn lockout(id: &str) -> Lockout {
    Lockout {
        id: id.to_owned(),
        attempts: 5,
        durations: vec![LOCK],
    }
}

fn attempt<'a>(lockout: &'a Lockout, subject: &'a str) -> Attempt<'a> {
    Attempt {
        lockout,
        subject,
        id: 1,
        origin: 2,
    }
}

const fn locked(retry_after: Duration) -> Begun {
    Begun {
        remaining: 0,
        refused: Some(Refused::Locked { retry_after }),
    }
}

const OPEN: Begun = Begun {
    remaining: 3,
    refused: None,
};

fn learn(known: &Locked, attempts: &[Attempt<'_>], now: Instant, begun: &[Begun]) {
    let before = known.recall(attempts, now).expect_err("nothing is known");
    known.learn(attempts, &before, begun);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_remembered_for_a_second_with_the_wait_that_is_left() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    learn(&known, &attempts, now, &[locked(LOCK)]);
    let later = now + MEMORY - TICK;
    assert_eq!(
        known.recall(&attempts, later).unwrap(),
        [locked(LOCK - (MEMORY - TICK))]
    );
    assert!(known.recall(&attempts, now + MEMORY).is_err());
    assert!(known.recall(&[attempt(&lockout, "eve")], now).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_short_lock_is_remembered_for_its_wait_only() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    learn(&known, &attempts, now, &[locked(2 * TICK)]);
    assert_eq!(known.recall(&attempts, now + TICK).unwrap(), [locked(TICK)]);
    assert!(known.recall(&attempts, now + 2 * TICK).is_err());
}

#[tokio::test(start_paused = true)]
async fn lockouts_that_decide_together_are_known_together_or_not_at_all() {
    let (known, a, b, now) = (Locked::new(10), lockout("a"), lockout("b"), Instant::now());
    let both = |one, other| [attempt(&a, one), attempt(&b, other)];
    learn(&known, &both("ada", "x"), now, &[locked(LOCK), OPEN]);
    assert_eq!(known.recall(&both("ada", "x"), now).unwrap(), [locked(LOCK), OPEN]);
    // This one may be locked for longer.
    assert!(known.recall(&both("ada", "y"), now).is_err());
    learn(&known, &both("ada", "y"), now, &[locked(LOCK), locked(2 * LOCK)]);
    assert_eq!(
        known.recall(&both("ada", "y"), now).unwrap(),
        [locked(LOCK), locked(2 * LOCK)]
    );
    // Without a lock among them the store has to count.
    assert!(known.recall(&both("eve", "x"), now).is_err());
    assert!(known.recall(&[attempt(&b, "x")], now).is_err());
}

#[tokio::test(start_paused = true)]
async fn attempts_that_began_or_have_to_wait_for_others_are_not_remembered() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    let busy = Begun {
        remaining: 0,
        refused: Some(Refused::UnderWay { retry_after: MEMORY }),
    };
    for begun in [OPEN, busy] {
        learn(&known, &attempts, now, &[begun]);
        assert!(known.recall(&attempts, now).is_err());
    }
    let nothing = Locked::new(0);
    learn(&nothing, &attempts, now, &[locked(LOCK)]);
    assert!(nothing.recall(&attempts, now).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_subject_stays_forgotten_for_answers_that_were_on_their_way() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    let before = known.recall(&attempts, now).unwrap_err();
    learn(&known, &attempts, now, &[locked(LOCK)]);
    known.forget("login", "ada");
    assert!(known.recall(&attempts, now).is_err());
    known.learn(&attempts, &before, &[locked(LOCK)]);
    assert!(known.recall(&attempts, now).is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_second_one_request_asks_for_the_whole_flood() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    learn(&known, &attempts, now, &[locked(LOCK)]);
    let over = now + MEMORY;
    let before = known.recall(&attempts, over).expect_err("the first asks");
    for _ in 0..1_000 {
        let refused = known.recall(&attempts, over + TICK).expect("the others do not");
        assert_eq!(refused, [locked(LOCK - MEMORY - TICK)]);
    }
    // If it never learns anything, all ask after a moment.
    assert!(known.recall(&attempts, over + RENEWAL).is_err());
    // The lock was lifted by another process: none is refused for it any more.
    known.learn(&attempts, &before, &[OPEN]);
    assert!(known.recall(&attempts, over + TICK).is_err());
}

#[tokio::test(start_paused = true)]
async fn no_memory_outlives_the_lock() {
    let (known, lockout, now) = (Locked::new(10), lockout("login"), Instant::now());
    let attempts = [attempt(&lockout, "ada")];
    learn(&known, &attempts, now, &[locked(MEMORY + TICK)]);
    assert!(known.recall(&attempts, now + MEMORY).is_err(), "the first asks");
    assert!(known.recall(&attempts, now + MEMORY).is_ok());
    assert!(known.recall(&attempts, now + MEMORY + TICK).is_err());
}
