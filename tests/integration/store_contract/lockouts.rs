//! Tallies of attempts, and the locks that they lead to.

use resilience::store::{Attempt, Begun, Lockout, LockoutStatus, Refused, Settle, Settlement};

use super::*;

/// Two places that attempts come from. They differ in the last bit only, beyond the precision of a double.
const HOME: u64 = u64::MAX - 1;
const AWAY: u64 = u64::MAX - 2;

fn lockout(id: &str, attempts: u32, durations: &[Duration]) -> Lockout {
    Lockout {
        id: id.to_owned(),
        attempts,
        durations: durations.to_vec(),
    }
}

impl Subject {
    async fn begin(&self, lockout: &Lockout, subject: &str, id: u64) -> Begun {
        self.begin_at(lockout, subject, id, HOME).await
    }

    async fn begin_at(&self, lockout: &Lockout, subject: &str, id: u64, origin: u64) -> Begun {
        let attempt = Attempt {
            lockout,
            subject,
            id,
            origin,
        };
        self.begin_all(&[attempt]).await[0]
    }

    async fn begin_all(&self, attempts: &[Attempt<'_>]) -> Vec<Begun> {
        self.store.begin_attempts(attempts, soon()).await.unwrap()
    }

    async fn settle(&self, lockout: &Lockout, subject: &str, id: u64, settle: Settle) {
        self.settle_at(lockout, subject, id, HOME, settle).await;
    }

    async fn settle_at(&self, lockout: &Lockout, subject: &str, id: u64, origin: u64, settle: Settle) {
        let attempt = Attempt {
            lockout,
            subject,
            id,
            origin,
        };
        let settled = [Settlement { attempt, settle }];
        self.store.settle_attempts(&settled, soon()).await.unwrap();
    }

    /// An attempt that fails if it may begin.
    async fn guess(&self, lockout: &Lockout, subject: &str, id: u64) -> Begun {
        self.guess_at(lockout, subject, id, HOME).await
    }

    async fn guess_at(&self, lockout: &Lockout, subject: &str, id: u64, origin: u64) -> Begun {
        let begun = self.begin_at(lockout, subject, id, origin).await;
        if begun.is_allowed() {
            self.settle_at(lockout, subject, id, origin, Settle::Fail).await;
        }
        begun
    }

    async fn status(&self, lockout: &Lockout, subject: &str) -> LockoutStatus {
        self.store.lockout_status(lockout, subject, soon()).await.unwrap()
    }
}

/// The wait of a lock; zero if there is none.
fn locked(begun: Begun) -> Duration {
    match begun.refused {
        Some(Refused::Locked { retry_after }) => retry_after,
        _ => Duration::ZERO,
    }
}

pub(super) async fn failures_count_down_to_a_lock(subject: Subject) {
    let login = lockout("login", 3, &[YEAR]);
    for (id, remaining) in [(1, 2), (2, 1), (3, 0)] {
        let begun = subject.guess(&login, "ada", id).await;
        assert_eq!((begun.refused, begun.remaining), (None, remaining));
    }
    let first = subject.begin(&login, "ada", 4).await;
    assert_eq!(first.remaining, 0);
    assert!(locked(first) <= YEAR && locked(first) > YEAR - PATIENCE, "{first:?}");
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.pending, status.locks), (3, 0, 1));
    assert!(status.locked_for.is_some_and(|locked_for| locked_for <= locked(first)));
    // Other subjects and other lockouts are not locked.
    assert!(subject.begin(&login, "eve", 5).await.is_allowed());
    assert!(
        subject
            .begin(&lockout("other", 3, &[YEAR]), "ada", 6)
            .await
            .is_allowed()
    );
    assert_eq!(subject.status(&login, "nobody").await, LockoutStatus::default());
}

pub(super) async fn a_retry_passes_after_the_lock(subject: Subject) {
    let login = lockout("login", 2, &[SHORT]);
    subject.guess(&login, "ada", 1).await;
    subject.guess(&login, "ada", 2).await;
    let wait = locked(subject.begin(&login, "ada", 3).await);
    assert!(wait > Duration::ZERO && wait <= SHORT);
    subject.pass(wait).await;
    let begun = subject.begin(&login, "ada", 4).await;
    assert_eq!((begun.refused, begun.remaining), (None, 1));
}

pub(super) async fn attempts_during_a_lock_do_not_extend_it(subject: Subject) {
    let login = lockout("login", 1, &[SHORT]);
    subject.guess(&login, "ada", 1).await;
    let mut waits = vec![SHORT];
    loop {
        let begun = subject.begin(&login, "ada", 2).await;
        if begun.is_allowed() {
            break;
        }
        waits.push(locked(begun));
        subject.pass(Duration::from_millis(20)).await;
    }
    assert!(
        waits.len() > 2 && waits.is_sorted_by(|earlier, later| later <= earlier),
        "{waits:?}"
    );
}

pub(super) async fn each_lock_lasts_longer_than_the_one_before(subject: Subject) {
    let short = Duration::from_millis(100);
    let login = lockout("login", 1, &[short, YEAR]);
    assert!(subject.guess(&login, "ada", 1).await.is_allowed());
    let wait = locked(subject.begin(&login, "ada", 2).await);
    assert!(wait <= short, "{wait:?}");
    subject.pass(wait).await;
    assert!(subject.guess(&login, "ada", 3).await.is_allowed());
    assert!(locked(subject.begin(&login, "ada", 4).await) > YEAR - PATIENCE);
    assert_eq!(subject.status(&login, "ada").await.locks, 2);
}

pub(super) async fn a_success_removes_the_failures_of_its_origin(subject: Subject) {
    let login = lockout("login", 5, &[YEAR]);
    for id in [1, 2] {
        subject.guess_at(&login, "ada", id, HOME).await;
        subject.guess_at(&login, "ada", 10 + id, AWAY).await;
    }
    subject.begin_at(&login, "ada", 3, HOME).await;
    subject.settle_at(&login, "ada", 3, HOME, Settle::Clear).await;
    assert_eq!(subject.status(&login, "ada").await.attempts, 2);
    // The last place is taken, and failed: a success from elsewhere did not make room for more.
    for id in [4, 5] {
        subject.begin_at(&login, "ada", id, HOME).await;
        subject.settle_at(&login, "ada", id, HOME, Settle::Clear).await;
        assert!(subject.guess_at(&login, "ada", 20 + id, AWAY).await.is_allowed());
    }
    assert!(subject.guess_at(&login, "ada", 30, AWAY).await.is_allowed());
    assert!(locked(subject.begin_at(&login, "ada", 6, HOME).await) > Duration::ZERO);
}

pub(super) async fn an_attempt_without_an_origin_clears_itself_alone(subject: Subject) {
    let login = lockout("login", 5, &[YEAR]);
    for origin in [0, u64::MAX] {
        subject.guess_at(&login, "ada", 1, origin).await;
        subject.begin_at(&login, "ada", 2, origin).await;
        subject.settle_at(&login, "ada", 2, origin, Settle::Clear).await;
        let status = subject.status(&login, "ada").await;
        assert_eq!((status.attempts, status.pending), (1, 0));
        subject.settle_at(&login, "ada", 1, origin, Settle::GiveBack).await;
    }
}

pub(super) async fn the_history_of_locks_is_forgotten_if_one_origin_led_to_all(subject: Subject) {
    let short = Duration::from_millis(100);
    for (name, second, remembered) in [("same", HOME, 0), ("mixed", AWAY, 2)] {
        let login = lockout(name, 1, &[short, 2 * short, YEAR]);
        for (id, origin) in [(1, HOME), (2, second)] {
            assert!(subject.guess_at(&login, "ada", id, origin).await.is_allowed());
            let wait = locked(subject.begin(&login, "ada", 3).await);
            subject.pass(wait).await;
        }
        assert!(subject.begin_at(&login, "ada", 4, HOME).await.is_allowed());
        assert_eq!(subject.status(&login, "ada").await.locks, 2);
        subject.settle_at(&login, "ada", 4, HOME, Settle::Clear).await;
        assert_eq!(subject.status(&login, "ada").await.locks, remembered, "{name}");
    }
}

pub(super) async fn an_attempt_that_is_given_back_lifts_the_lock_that_came_of_it(subject: Subject) {
    let login = lockout("login", 2, &[YEAR]);
    for id in [1, 2] {
        assert!(subject.guess(&login, "ada", id).await.is_allowed());
    }
    // One that was never counted, and one of another subject's tally.
    subject.settle(&login, "ada", 7, Settle::GiveBack).await;
    subject.settle(&login, "eve", 1, Settle::GiveBack).await;
    assert!(locked(subject.begin(&login, "ada", 3).await) > Duration::ZERO);
    subject.settle(&login, "ada", 1, Settle::GiveBack).await;
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.locked_for, status.locks), (1, None, 0));
    // Twice gives nothing back twice.
    subject.settle(&login, "ada", 1, Settle::GiveBack).await;
    assert_eq!(subject.guess(&login, "ada", 4).await.remaining, 0);
    assert!(!subject.begin(&login, "ada", 5).await.is_allowed());
}

pub(super) async fn attempts_under_way_are_no_failures_and_no_more_than_the_limit(subject: Subject) {
    let login = lockout("login", 2, &[YEAR]);
    for id in [1, 2] {
        assert!(subject.begin(&login, "ada", id).await.is_allowed());
    }
    let busy = subject.begin(&login, "ada", 3).await;
    let Some(Refused::UnderWay { retry_after }) = busy.refused else {
        panic!("{busy:?}");
    };
    assert_eq!((retry_after, busy.remaining), (Duration::from_secs(1), 0));
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.pending, status.locked_for), (0, 2, None));
    subject.settle(&login, "ada", 1, Settle::Fail).await;
    // A failure counts once, however often it is told.
    subject.settle(&login, "ada", 1, Settle::Fail).await;
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.pending, status.locked_for), (1, 1, None));
    subject.settle(&login, "ada", 2, Settle::Clear).await;
    assert_eq!(subject.status(&login, "ada").await, LockoutStatus::default());
    assert_eq!(subject.begin(&login, "ada", 4).await.remaining, 1);
}

pub(super) async fn ids_of_all_bits_are_told_apart(subject: Subject) {
    let login = lockout("login", 3, &[YEAR]);
    // Beyond the precision of a double, they differ in the last bit.
    for id in [u64::MAX, u64::MAX - 1] {
        subject.begin(&login, "ada", id).await;
    }
    subject.settle(&login, "ada", u64::MAX, Settle::GiveBack).await;
    subject.settle(&login, "ada", u64::MAX, Settle::GiveBack).await;
    assert_eq!(subject.status(&login, "ada").await.pending, 1);
}

pub(super) async fn several_tallies_count_all_or_none(subject: Subject) {
    let (account, address) = (lockout("account", 1, &[YEAR]), lockout("address", 5, &[YEAR]));
    let both = |id| {
        [(&account, "account:ada"), (&address, "ip:10.0.0.1")].map(|(lockout, subject)| Attempt {
            lockout,
            subject,
            id,
            origin: HOME,
        })
    };
    let begun = subject.begin_all(&both(1)).await;
    assert!(begun.iter().all(Begun::is_allowed));
    // Under way first, locked then.
    for id in 2..6 {
        if id == 4 {
            subject.settle(&account, "account:ada", 1, Settle::Fail).await;
        }
        let begun = subject.begin_all(&both(id)).await;
        assert_eq!(locked(begun[0]) > Duration::ZERO, id >= 4, "{begun:?}");
        assert!(!begun[0].is_allowed() && begun[1].is_allowed(), "{begun:?}");
        assert_eq!(begun[1].remaining, 4);
    }
    assert_eq!(subject.status(&address, "ip:10.0.0.1").await.pending, 1);
    assert!(subject.begin_all(&[]).await.is_empty());
}

pub(super) async fn of_two_hundred_guesses_at_once_five_begin(subject: Subject) {
    let login = lockout("login", 5, &[YEAR]);
    let begun = join_all((0..200).map(|id| subject.guess(&login, "ada", id))).await;
    assert_eq!(begun.iter().filter(|begun| begun.is_allowed()).count(), 5);
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.pending, status.locks), (5, 0, 1));
}

pub(super) async fn subjects_and_lockouts_never_meet(subject: Subject) {
    let names = ["a", "a}", "a}:b", "b", "}:b", "%7D", "{a}", ""];
    for (nth, id) in names.iter().enumerate() {
        let lockout = lockout(id, 1, &[YEAR]);
        for (mth, name) in names.iter().enumerate() {
            let id = (nth * names.len() + mth) as u64;
            assert!(subject.begin(&lockout, name, id).await.is_allowed(), "{id:?} {name:?}");
        }
    }
}

pub(super) async fn an_operator_unlocks(subject: Subject) {
    let login = lockout("login", 1, &[YEAR]);
    subject.guess(&login, "ada", 1).await;
    assert!(!subject.begin(&login, "ada", 2).await.is_allowed());
    assert!(subject.store.unlock(&login, "ada", soon()).await.unwrap());
    assert!(!subject.store.unlock(&login, "ada", soon()).await.unwrap());
    assert!(subject.begin(&login, "ada", 3).await.is_allowed());
}
