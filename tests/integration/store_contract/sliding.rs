//! Sliding windows: the exact log of a small limit, and the counters of a large one.

use super::*;

fn sliding(id: &str, limit: u32, window: Duration) -> Quota {
    quota(id, limit, window, Algorithm::SlidingWindow)
}

pub(super) async fn a_steady_client_gets_the_whole_limit(subject: Subject) {
    for limit in [1, 2] {
        let quota = sliding(&limit.to_string(), limit, 2 * SHORT);
        let mut passed = 0;
        let mut due = Duration::ZERO;
        // Whole windows, each unit of the limit as soon as the store lets it pass.
        while passed < 3 * limit {
            let taken = subject.take(&quota, "client").await;
            if taken.allowed {
                passed += 1;
            } else {
                due += taken.retry_after;
                subject.pass(taken.retry_after).await;
            }
        }
        assert!(due <= 2 * 2 * SHORT, "{limit}: {due:?}");
    }
}

pub(super) async fn units_leave_a_log_one_by_one(subject: Subject) {
    let quota = sliding("q", 3, 8 * SHORT);
    for remaining in [2, 1, 0] {
        let taken = subject.take(&quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, remaining));
        subject.pass(SHORT).await;
    }
    // The oldest leaves after eight steps, of which at least three are over; two of them have to leave for a cost of 2.
    let one = subject.take(&quota, "client").await;
    let two = subject.take_for(2, &quota, "client").await;
    assert!(!one.allowed && !two.allowed);
    assert!(one.retry_after <= 5 * SHORT && one.reset >= one.retry_after);
    assert!(two.retry_after > one.retry_after && two.retry_after <= 6 * SHORT);
    subject.pass(one.retry_after).await;
    let one = subject.take(&quota, "client").await;
    assert!(one.allowed);
    let two = subject.take_for(2, &quota, "client").await;
    assert!(!two.allowed && two.remaining <= 1);
    subject.pass(two.retry_after).await;
    assert!(subject.take_for(2, &quota, "client").await.allowed);
}

pub(super) async fn the_reset_of_a_log_is_when_its_oldest_unit_leaves(subject: Subject) {
    let quota = sliding("q", 5, 8 * SHORT);
    let first = subject.take(&quota, "client").await;
    assert_eq!((first.reset, first.retry_after), (8 * SHORT, Duration::ZERO));
    subject.pass(SHORT).await;
    let second = subject.take(&quota, "client").await;
    assert!(second.reset <= 7 * SHORT && second.reset > Duration::ZERO);
    let all = subject.take_for(3, &quota, "client").await;
    assert!(all.allowed && all.reset >= all.retry_after && all.retry_after > SHORT);
}

pub(super) async fn no_wait_of_a_large_limit_is_longer_than_its_window(subject: Subject) {
    let quota = sliding("q", 1_000, 2 * SHORT);
    for _ in 0..3 {
        let all = subject.take_for(1_000, &quota, "client").await;
        assert!(all.allowed && all.retry_after <= 2 * SHORT, "{all:?}");
        // The whole limit once more: two windows by the counters, one by the time of the last request.
        subject.pass(all.retry_after).await;
    }
    let refused = subject.take_for(1_000, &quota, "client").await;
    if !refused.allowed {
        assert!(refused.retry_after <= 2 * SHORT);
        subject.pass(refused.retry_after).await;
        assert!(subject.take_for(1_000, &quota, "client").await.allowed);
    }
}

pub(super) async fn a_limit_that_is_changed_keeps_what_was_counted(subject: Subject) {
    let of = |limit| sliding("q", limit, YEAR);
    assert_eq!(subject.take_for(7, &of(10), "client").await.remaining, 3);
    // Raised and lowered within the log, then over the line between log and counters, and back.
    assert_eq!(subject.take(&of(20), "client").await.remaining, 12);
    let refused = subject.take(&of(5), "client").await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
    assert_eq!(subject.take(&of(500), "client").await.remaining, 491);
    assert_eq!(subject.take(&of(20), "client").await.remaining, 10);
    assert_eq!(subject.take_for(300, &of(500), "client").await.remaining, 190);
    let refused = subject.take(&of(100), "client").await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
    assert!(refused.retry_after > YEAR - PATIENCE && refused.retry_after <= YEAR);
}

pub(super) async fn the_largest_log_and_the_smallest_counters_admit_their_limit(subject: Subject) {
    for limit in [99, 100, 101] {
        let quota = sliding(&limit.to_string(), limit, YEAR);
        for remaining in (0..limit).rev() {
            assert_eq!(subject.take(&quota, "client").await.remaining, remaining);
        }
        assert!(!subject.take(&quota, "client").await.allowed);
    }
}
