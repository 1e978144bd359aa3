//! How it stands with the store: whether it may be asked, and when.
//!
//! The figures are those that users of such systems know: three failures in a row are an outage, in which the store is left
//! in peace for half a minute.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which the store is not asked any more.
const FAILURES: u32 = 3;
/// For how long.
const DEGRADED_FOR: Duration = Duration::from_secs(30);
/// How often credentials are tried that the store has refused.
const DENIED_FOR: Duration = Duration::from_secs(60);
/// How long after the first failure the store is asked again; twice as long after each that follows.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The failures of one store in the eyes of one runtime.
#[derive(Debug, Default)]
pub(super) struct Contact {
    failures: u32,
    /// Not to be asked before.
    not_before: Option<Instant>,
    last_failure: Option<Instant>,
    is_degraded: bool,
    is_denied: bool,
    warned: bool,
}

/// What is worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first failure after a success.
    Failing,
    /// The third: the store is left in peace.
    Degraded,
    /// Refused credentials.
    Denied,
    /// It serves again.
    Restored,
}

impl Contact {
    /// Whether the store may be asked.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|start| start <= now)
    }

    /// When it may, if not now.
    pub(super) const fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether each instance goes by itself at present.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        (self.is_degraded || self.is_denied) && !self.may_ask(now)
    }

    /// Whether the last answers were missing for so long that the store is left in peace, or its next answer decides.
    pub(super) const fn is_degraded(&self) -> bool {
        self.is_degraded || self.is_denied
    }

    pub(super) fn answered(&mut self) -> Option<Turn> {
        let was = std::mem::take(self);
        (was.is_degraded || was.is_denied || was.warned).then_some(Turn::Restored)
    }

    pub(super) fn failed(&mut self, now: Instant, is_denied: bool) -> Option<Turn> {
        self.last_failure = Some(now);
        if is_denied {
            self.not_before = Some(now + DENIED_FOR);
            return (!std::mem::replace(&mut self.is_denied, true)).then_some(Turn::Denied);
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            self.not_before = Some(now + DEGRADED_FOR);
            return (!std::mem::replace(&mut self.is_degraded, true)).then_some(Turn::Degraded);
        }
        self.not_before = Some(now + FIRST_WAIT * (1 << (self.failures - 1)));
        (!std::mem::replace(&mut self.warned, true)).then_some(Turn::Failing)
    }

    /// The store has spoken by itself: it may be asked at once, and failures count anew. Not in the moment after a failure,
    /// though: a store that speaks all the time and answers nothing must not be asked all the time.
    pub(super) fn pushed(&mut self) {
        self.failures = 0;
        let soon = self.last_failure.map(|failure| failure + FIRST_WAIT);
        self.not_before = self.not_before.min(soon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_leave_the_store_in_peace_for_half_a_minute() {
        let start = Instant::now();
        let mut contact = Contact::default();
        assert!(contact.may_ask(start));
        assert_eq!(contact.failed(start, false), Some(Turn::Failing));
        assert_eq!(contact.not_before(), Some(start + Duration::from_millis(250)));
        assert_eq!(contact.answered(), Some(Turn::Restored));
        // A success in between: not in a row.
        assert_eq!(contact.failed(start, false), Some(Turn::Failing));
        assert_eq!(contact.failed(start, false), None);
        assert_eq!(contact.not_before(), Some(start + Duration::from_millis(500)));
        assert!(!contact.is_cut_off(start), "two are no outage");
        assert_eq!(contact.failed(start, false), Some(Turn::Degraded));
        let almost = start + Duration::from_millis(29_999);
        assert!(contact.is_cut_off(almost) && !contact.may_ask(almost));
        let over = start + Duration::from_secs(30);
        assert!(contact.may_ask(over) && !contact.is_cut_off(over), "it ends by itself");
        // Still in a row.
        assert_eq!(contact.failed(over, false), None);
        assert!(!contact.may_ask(over + Duration::from_millis(29_999)));
        assert_eq!(contact.answered(), Some(Turn::Restored));
        assert!(contact.may_ask(over) && !contact.is_degraded());
        assert_eq!(contact.answered(), None);
    }

    #[test]
    fn a_push_ends_the_peace_at_once() {
        let start = Instant::now();
        let mut contact = Contact::default();
        for _ in 0..3 {
            contact.failed(start, false);
        }
        contact.pushed();
        assert!(!contact.may_ask(start), "not in the very moment of the failure");
        let moment = start + FIRST_WAIT;
        assert!(contact.may_ask(moment) && !contact.is_cut_off(moment));
        assert!(contact.is_degraded(), "until it has answered");
        assert_eq!(contact.answered(), Some(Turn::Restored));
    }

    #[test]
    fn refused_credentials_are_said_once_and_tried_once_a_minute() {
        let start = Instant::now();
        let mut contact = Contact::default();
        assert_eq!(contact.failed(start, true), Some(Turn::Denied));
        for minute in 1..5 {
            let at = start + Duration::from_secs(60) * minute;
            assert!(contact.may_ask(at));
            _ = contact.failed(at, true);
            assert!(!contact.may_ask(at + Duration::from_millis(59_999)));
            assert_eq!(contact.failed(at, true), None);
        }
        assert_eq!(contact.answered(), Some(Turn::Restored));
    }
}
