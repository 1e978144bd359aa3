//! One quota.

use super::*;

pub(super) async fn a_quota_counts_down_to_a_refusal(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 3, YEAR, algorithm);
        for remaining in [2, 1] {
            let taken = subject.take(&quota, "client").await;
            assert_eq!((taken.allowed, taken.remaining), (true, remaining));
            assert_eq!(taken.retry_after, Duration::ZERO);
            assert!(taken.reset > Duration::ZERO && taken.reset <= YEAR);
        }
        let last = subject.take(&quota, "client").await;
        assert_eq!((last.allowed, last.remaining), (true, 0));
        assert!(last.retry_after > Duration::ZERO && last.reset >= last.retry_after);
        for _ in 0..3 {
            let refused = subject.take(&quota, "client").await;
            assert_eq!((refused.allowed, refused.remaining), (false, 0));
            assert!(refused.retry_after > Duration::ZERO && refused.reset >= refused.retry_after);
        }
        assert!(subject.take(&quota, "another client").await.allowed);
    }
}

/// Takes until the quota refuses.
async fn exhaust(subject: &Subject, quota: &Quota) -> Taken {
    // A window may end meanwhile, which makes it take a little longer.
    for _ in 0..1_000 {
        let taken = subject.take(quota, "client").await;
        if !taken.allowed {
            return taken;
        }
    }
    panic!("{quota:?} never refuses");
}

pub(super) async fn a_retry_passes_after_the_wait(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 3, SHORT, algorithm);
        for _ in 0..4 {
            let refused = exhaust(&subject, &quota).await;
            assert!(refused.retry_after >= Duration::from_millis(1) && refused.retry_after <= SHORT);
            subject.pass(refused.retry_after).await;
            assert!(
                subject.take(&quota, "client").await.allowed,
                "{algorithm:?}: {refused:?}"
            );
        }
    }
}

pub(super) async fn the_next_request_passes_after_the_wait_that_the_last_one_was_told(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 1, SHORT, algorithm);
        let first = subject.take(&quota, "client").await;
        assert_eq!((first.allowed, first.remaining), (true, 0));
        subject.pass(first.retry_after).await;
        assert!(subject.take(&quota, "client").await.allowed, "{algorithm:?}: {first:?}");
    }
}

pub(super) async fn refused_requests_consume_nothing(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 2, YEAR, algorithm);
        let first = exhaust(&subject, &quota).await;
        for _ in 0..50 {
            let refused = subject.take(&quota, "client").await;
            // If they counted, each would have to wait longer than the one before.
            assert!(!refused.allowed && refused.retry_after <= first.retry_after);
        }
    }
}

pub(super) async fn a_window_of_a_millisecond_passes(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 1, Duration::from_millis(1), algorithm);
        for _ in 0..5 {
            subject.pass(Duration::from_millis(2)).await;
            let taken = subject.take(&quota, "client").await;
            assert!(taken.allowed && taken.retry_after <= Duration::from_millis(1));
        }
    }
}

pub(super) async fn a_cost_is_taken_whole_or_not_at_all(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 10, YEAR, algorithm);
        let taken = subject.take_for(4, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 6));
        assert_eq!(taken.retry_after, Duration::ZERO);
        let taken = subject.take_for(4, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 2));
        // Another of this cost would have to wait, though something is left.
        assert!(taken.retry_after > Duration::ZERO && taken.reset >= taken.retry_after);
        let refused = subject.take_for(4, &quota, "client").await;
        assert_eq!((refused.allowed, refused.remaining), (false, 2));
        assert!(refused.retry_after > Duration::ZERO && refused.reset >= refused.retry_after);
        let taken = subject.take_for(2, &quota, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, 0));
        // Whatever can never be had is all that can be had.
        assert!(subject.take_for(u32::MAX, &quota, "another client").await.allowed);
        assert!(!subject.take(&quota, "another client").await.allowed);
    }
}

pub(super) async fn a_costly_retry_passes_after_the_wait(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 5, SHORT, algorithm);
        exhaust(&subject, &quota).await;
        for cost in [3, 5, 2] {
            let taken = subject.take_for(cost, &quota, "client").await;
            assert!(taken.retry_after <= SHORT);
            if !taken.allowed {
                subject.pass(taken.retry_after).await;
                let retried = subject.take_for(cost, &quota, "client").await;
                assert!(retried.allowed, "{algorithm:?} {cost}: {taken:?}");
            }
        }
    }
}

/// `limit` tokens in a year, of which `burst` fit into the bucket.
fn bucket(id: &str, limit: u32, burst: u32) -> Quota {
    Quota {
        burst,
        ..quota(id, limit, YEAR, Algorithm::TokenBucket)
    }
}

pub(super) async fn a_bucket_lets_its_burst_pass_and_then_what_it_gains(subject: Subject) {
    let slow = bucket("slow", 366, 3);
    for remaining in [2, 1, 0] {
        let taken = subject.take(&slow, "client").await;
        assert_eq!((taken.allowed, taken.remaining), (true, remaining));
    }
    // One comes a day.
    let day = Duration::from_secs(24 * 60 * 60);
    let refused = subject.take(&slow, "client").await;
    assert!(!refused.allowed && refused.retry_after <= day && refused.retry_after > day - PATIENCE);
    assert!(refused.reset <= 3 * day && refused.reset > 3 * day - PATIENCE);

    // Four in a window of which one fits: each has to wait for a quarter of it, not for its end.
    let quick = Quota {
        window: 4 * SHORT,
        ..bucket("quick", 4, 1)
    };
    for _ in 0..3 {
        let taken = subject.take(&quick, "client").await;
        assert_eq!((taken.allowed, taken.retry_after), (true, SHORT));
        subject.pass(SHORT).await;
    }
}

pub(super) async fn a_bucket_of_many_tokens_loses_none_of_them(subject: Subject) {
    // The products of these numbers are beyond what Lua can count.
    let quota = bucket("vast", u32::MAX, u32::MAX);
    let first = subject.take_for(u32::MAX - 1, &quota, "client").await;
    // Some tokens come while the next request is on its way: one each 7 ms.
    assert_eq!((first.allowed, first.remaining), (true, 1));
    assert!(subject.take(&quota, "client").await.allowed);
    let refused = subject.take_for(u32::MAX, &quota, "client").await;
    assert!(!refused.allowed && refused.retry_after <= YEAR && refused.retry_after > YEAR - PATIENCE);
}
