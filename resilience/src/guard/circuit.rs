//! A guard that asks a dependency's breaker before the handler begins its work.

use poem::Request;

use super::{BoxError, BoxFuture, Guard, Verdict};
use crate::Dependencies;

/// Refuses requests with 503 `circuit_open` while a dependency's circuit is open, so that a handler which cannot do without
/// it does no half of its work.
///
/// It looks at the breaker of this name in the app's [`Dependencies`], shared with other instances or not, and takes nothing
/// from it: what opens and closes it are the handler's calls. Once a probe may go, requests pass.
///
/// ```
/// use resilience::{guard::CircuitGuard, resilient};
///
/// static PAYMENTS: CircuitGuard = CircuitGuard::new("payments");
///
/// #[resilient(auth = "fail_closed", guard(PAYMENTS))]
/// #[poem::handler]
/// async fn checkout() -> &'static str {
///     "…"
/// }
/// # let _endpoint = poem::post(checkout);
/// ```
#[derive(Debug)]
pub struct CircuitGuard {
    dependency: &'static str,
}

impl CircuitGuard {
    /// For this dependency.
    #[must_use]
    pub const fn new(dependency: &'static str) -> Self {
        Self { dependency }
    }
}

impl Guard for CircuitGuard {
    fn name(&self) -> &'static str {
        self.dependency
    }

    fn check<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
        Box::pin(async {
            let refusal = Dependencies::current().breaker(self.dependency).refusal();
            Ok(match refusal {
                None => Verdict::Pass,
                Some(open) => Verdict::Reject(open.into()),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::breaker::BreakerConfig;

    #[tokio::test(start_paused = true)]
    async fn requests_pass_while_calls_would_and_the_guard_takes_no_probe() {
        static PAYMENTS: CircuitGuard = CircuitGuard::new("payments");
        let request = Request::default();
        let config = BreakerConfig::default().with_failures_in_a_row(1);
        let dependencies = Dependencies::with_config(config).expect("valid");
        let verdict = || dependencies.scope(PAYMENTS.check(&request));
        assert!(matches!(verdict().await, Ok(Verdict::Pass)));

        dependencies.breaker("payments").record_failure();
        let Ok(Verdict::Reject(refusal)) = verdict().await else {
            panic!("the circuit is open");
        };
        assert_eq!(refusal.code(), "circuit_open");
        assert_eq!(refusal.retry_after(), Some(Duration::from_secs(5)));

        tokio::time::advance(Duration::from_secs(5)).await;
        for _ in 0..3 {
            assert!(matches!(verdict().await, Ok(Verdict::Pass)), "a probe may go");
        }
        let probe = dependencies
            .breaker("payments")
            .try_acquire_owned()
            .expect("nobody has taken it");
        assert!(matches!(verdict().await, Ok(Verdict::Reject(_))), "it has gone");
        probe.success();
        assert!(matches!(verdict().await, Ok(Verdict::Pass)));
    }
}
