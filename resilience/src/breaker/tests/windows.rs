//! The windows against a plain list of all calls.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use crate::breaker::{
    config::RateWindow,
    window::{BUCKETS, Counts, Window},
};

fn count(calls: impl Iterator<Item = bool>) -> Counts {
    calls.fold(Counts::default(), |counts, failed| Counts {
        calls: counts.calls + 1,
        marked: counts.marked + u64::from(failed),
    })
}

fn no_clock() -> u64 {
    panic!("a window over calls must not read the clock")
}

proptest! {
    #[test]
    fn a_call_window_holds_exactly_the_last_calls(size in 1u32..200, calls in vec(any::<bool>(), 0..600)) {
        let mut window = Window::new(RateWindow::Calls(size));
        for (index, &failed) in calls.iter().enumerate() {
            window.record(failed, no_clock);
            let recorded = &calls[..=index];
            let last = &recorded[recorded.len().saturating_sub(size as usize)..];
            prop_assert_eq!(window.counts(), count(last.iter().copied()));
        }
    }

    #[test]
    fn a_cleared_call_window_forgets(size in 1u32..100, before in vec(any::<bool>(), 0..150), after in vec(any::<bool>(), 0..150)) {
        let mut window = Window::new(RateWindow::Calls(size));
        before.iter().for_each(|&failed| window.record(failed, no_clock));
        window.clear();
        after.iter().for_each(|&failed| window.record(failed, no_clock));
        let last = &after[after.len().saturating_sub(size as usize)..];
        prop_assert_eq!(window.counts(), count(last.iter().copied()));
    }

    #[test]
    fn a_time_window_holds_the_last_ten_buckets(
        width in 1_000_000u64..5_000_000,
        start in any::<u32>(),
        calls in vec((any::<bool>(), prop_oneof![4 => 0u64..1_000_000, 2 => 0u64..20_000_000, 1 => 0u64..200_000_000]), 0..300),
    ) {
        let mut window = Window::new(RateWindow::Time(Duration::from_nanos(width * BUCKETS as u64)));
        let mut now = u64::from(start);
        let mut recorded = Vec::new();
        for (failed, step) in calls {
            now += step;
            window.record(failed, || now);
            recorded.push((failed, now / width));
            let oldest = (now / width).saturating_sub(BUCKETS as u64 - 1);
            let inside = recorded.iter().filter(|&&(_, bucket)| bucket >= oldest);
            prop_assert_eq!(window.counts(), count(inside.map(|&(failed, _)| failed)));
        }
    }
}

#[test]
fn a_step_back_in_time_counts_as_now() {
    let mut window = Window::new(RateWindow::Time(Duration::from_millis(100)));
    window.record(true, || 5_000_000_000);
    window.record(true, || 1_000_000_000);
    assert_eq!(window.counts(), Counts { calls: 2, marked: 2 });
}

#[test]
fn the_end_of_time_does_not_overflow() {
    let mut window = Window::new(RateWindow::Time(Duration::from_millis(10)));
    window.record(true, || u64::MAX - 1);
    window.record(false, || u64::MAX);
    assert_eq!(window.counts(), Counts { calls: 2, marked: 1 });
    assert_eq!(window.counts().rate(), 0.5);

    let mut endless = Window::new(RateWindow::Time(Duration::MAX));
    endless.record(true, || 0);
    endless.record(true, || u64::MAX / 2);
    assert_eq!(endless.counts().calls, 2);
}

#[test]
fn a_rate_equals_its_literal() {
    let window = |calls, marked| Counts { calls, marked };
    assert_eq!(window(100, 7).rate(), 0.07);
    assert_eq!(window(1000, 29).rate(), 0.029);
    assert_eq!(window(0, 0).rate(), 0.0);
}
