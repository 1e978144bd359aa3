//! Tallies of attempts, and the locks that they lead to.

use resilience::store::{Attempt, Begun, Lockout, LockoutStatus, Settle, Settlement};

use super::*;

fn lockout(id: &str, attempts: u32, durations: &[Duration]) -> Lockout {
    Lockout {
        id: id.to_owned(),
        attempts,
        durations: durations.to_vec(),
    }
}

impl Subject {
    async fn begin(&self, lockout: &Lockout, subject: &str, id: u64) -> Begun {
        self.begin_all(&[Attempt { lockout, subject, id }]).await[0]
    }

    async fn begin_all(&self, attempts: &[Attempt<'_>]) -> Vec<Begun> {
        self.store.begin_attempts(attempts, soon()).await.unwrap()
    }

    async fn settle(&self, lockout: &Lockout, subject: &str, id: u64, settle: Settle) {
        let attempt = Attempt { lockout, subject, id };
        let settled = [Settlement { attempt, settle }];
        self.store.settle_attempts(&settled, soon()).await.unwrap();
    }

    async fn status(&self, lockout: &Lockout, subject: &str) -> LockoutStatus {
        self.store.lockout_status(lockout, subject, soon()).await.unwrap()
    }
}

pub(super) async fn attempts_count_down_to_a_lock(subject: Subject) {
    let login = lockout("login", 3, &[YEAR]);
    for (id, remaining) in [(1, 2), (2, 1), (3, 0)] {
        let begun = subject.begin(&login, "ada", id).await;
        assert_eq!(
            (begun.allowed, begun.remaining, begun.retry_after),
            (true, remaining, Duration::ZERO)
        );
    }
    let first = subject.begin(&login, "ada", 4).await;
    assert_eq!((first.allowed, first.remaining), (false, 0));
    assert!(
        first.retry_after <= YEAR && first.retry_after > YEAR - PATIENCE,
        "{first:?}"
    );
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.locks), (3, 1));
    assert!(
        status
            .locked_for
            .is_some_and(|locked_for| locked_for <= first.retry_after)
    );
    // The lock is somebody else's too, but not everybody's.
    assert!(subject.begin(&login, "eve", 5).await.allowed);
    assert!(subject.begin(&lockout("other", 3, &[YEAR]), "ada", 6).await.allowed);
    assert_eq!(subject.status(&login, "nobody").await, LockoutStatus::default());
}

pub(super) async fn a_retry_passes_after_the_lock(subject: Subject) {
    let login = lockout("login", 2, &[SHORT]);
    subject.begin(&login, "ada", 1).await;
    subject.begin(&login, "ada", 2).await;
    let refused = subject.begin(&login, "ada", 3).await;
    assert!(!refused.allowed && refused.retry_after > Duration::ZERO && refused.retry_after <= SHORT);
    subject.pass(refused.retry_after).await;
    let begun = subject.begin(&login, "ada", 4).await;
    assert_eq!((begun.allowed, begun.remaining), (true, 1));
}

pub(super) async fn attempts_during_a_lock_do_not_extend_it(subject: Subject) {
    let login = lockout("login", 1, &[SHORT]);
    subject.begin(&login, "ada", 1).await;
    let mut waits = vec![SHORT];
    loop {
        let begun = subject.begin(&login, "ada", 2).await;
        if begun.allowed {
            break;
        }
        waits.push(begun.retry_after);
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
    assert!(subject.begin(&login, "ada", 1).await.allowed);
    let wait = subject.begin(&login, "ada", 2).await.retry_after;
    assert!(wait <= short, "{wait:?}");
    subject.pass(wait).await;
    assert!(subject.begin(&login, "ada", 3).await.allowed);
    assert!(subject.begin(&login, "ada", 4).await.retry_after > YEAR - PATIENCE);
    assert_eq!(subject.status(&login, "ada").await.locks, 2);
}

pub(super) async fn a_success_forgets_the_tally_and_its_lock(subject: Subject) {
    let login = lockout("login", 2, &[YEAR]);
    subject.begin(&login, "ada", 1).await;
    subject.begin(&login, "ada", 2).await;
    subject.settle(&login, "ada", 2, Settle::Clear).await;
    assert_eq!(subject.status(&login, "ada").await, LockoutStatus::default());
    assert_eq!(subject.begin(&login, "ada", 3).await.remaining, 1);
}

pub(super) async fn an_attempt_that_is_given_back_lifts_the_lock_that_came_of_it(subject: Subject) {
    let login = lockout("login", 2, &[YEAR]);
    for id in [1, 2] {
        assert!(subject.begin(&login, "ada", id).await.allowed);
    }
    // One that was never counted, and one of somebody else's tally.
    subject.settle(&login, "ada", 7, Settle::GiveBack).await;
    subject.settle(&login, "eve", 1, Settle::GiveBack).await;
    assert!(!subject.begin(&login, "ada", 3).await.allowed);
    subject.settle(&login, "ada", 1, Settle::GiveBack).await;
    let status = subject.status(&login, "ada").await;
    assert_eq!((status.attempts, status.locked_for, status.locks), (1, None, 0));
    // Twice gives nothing back twice.
    subject.settle(&login, "ada", 1, Settle::GiveBack).await;
    assert_eq!(subject.begin(&login, "ada", 4).await.remaining, 0);
    assert!(!subject.begin(&login, "ada", 5).await.allowed);
}

pub(super) async fn ids_of_all_bits_are_told_apart(subject: Subject) {
    let login = lockout("login", 3, &[YEAR]);
    // Beyond what a double can hold, they differ in the last bit.
    for id in [u64::MAX, u64::MAX - 1] {
        subject.begin(&login, "ada", id).await;
    }
    subject.settle(&login, "ada", u64::MAX, Settle::GiveBack).await;
    subject.settle(&login, "ada", u64::MAX, Settle::GiveBack).await;
    assert_eq!(subject.status(&login, "ada").await.attempts, 1);
}

pub(super) async fn several_tallies_count_all_or_none(subject: Subject) {
    let (account, address) = (lockout("account", 1, &[YEAR]), lockout("address", 5, &[YEAR]));
    let both = |id| {
        [(&account, "account:ada"), (&address, "ip:10.0.0.1")].map(|(lockout, subject)| Attempt {
            lockout,
            subject,
            id,
        })
    };
    let begun = subject.begin_all(&both(1)).await;
    assert!(begun.iter().all(|begun| begun.allowed));
    for id in 2..5 {
        let begun = subject.begin_all(&both(id)).await;
        assert!(!begun[0].allowed && begun[1].allowed, "{begun:?}");
        assert_eq!(begun[1].remaining, 4);
    }
    assert_eq!(subject.status(&address, "ip:10.0.0.1").await.attempts, 1);
    assert!(subject.begin_all(&[]).await.is_empty());
}

pub(super) async fn of_two_hundred_guesses_at_once_five_begin(subject: Subject) {
    let login = lockout("login", 5, &[YEAR]);
    let begun = join_all((0..200).map(|id| subject.begin(&login, "ada", id))).await;
    assert_eq!(begun.iter().filter(|begun| begun.allowed).count(), 5);
    assert_eq!(subject.status(&login, "ada").await.attempts, 5);
}

pub(super) async fn subjects_and_lockouts_never_meet(subject: Subject) {
    let names = ["a", "a}", "a}:b", "b", "}:b", "%7D", "{a}", ""];
    for (nth, id) in names.iter().enumerate() {
        let lockout = lockout(id, 1, &[YEAR]);
        for (mth, name) in names.iter().enumerate() {
            let id = (nth * names.len() + mth) as u64;
            assert!(subject.begin(&lockout, name, id).await.allowed, "{id:?} {name:?}");
        }
    }
}

pub(super) async fn an_operator_unlocks(subject: Subject) {
    let login = lockout("login", 1, &[YEAR]);
    subject.begin(&login, "ada", 1).await;
    assert!(!subject.begin(&login, "ada", 2).await.allowed);
    assert!(subject.store.unlock(&login, "ada", soon()).await.unwrap());
    assert!(!subject.store.unlock(&login, "ada", soon()).await.unwrap());
    assert!(subject.begin(&login, "ada", 3).await.allowed);
}
