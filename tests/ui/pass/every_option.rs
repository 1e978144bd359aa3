//! Every guard with every option, in any order, with and without trailing commas.

use poem::handler;
use resilience::{Identity, resilient};

mod keys {
    use poem::Request;
    use resilience::Identity;

    pub fn device(request: &Request) -> Option<String> {
        Identity::of(request).map(|user| user.0.clone())
    }
}

fn by_path(request: &poem::Request) -> Option<String> {
    Some(request.uri().path().to_owned())
}

mod guards {
    use std::sync::atomic::{AtomicU64, Ordering};

    use poem::Request;
    use resilience::guard::{BoxError, BoxFuture, Guard, Verdict};

    #[derive(Debug)]
    pub struct Counter {
        seen: AtomicU64,
    }

    impl Counter {
        const fn new() -> Self {
            Self {
                seen: AtomicU64::new(0),
            }
        }
    }

    impl Guard for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }

        fn check<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
            self.seen.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(Verdict::Pass) })
        }
    }

    pub static COUNTER: Counter = Counter::new();

    pub mod deep {
        pub static OTHER: super::Counter = super::Counter::new();
    }

    #[derive(Debug)]
    pub struct Always<const N: u8>;

    impl<const N: u8> Guard for Always<N> {
        fn name(&self) -> &'static str {
            "always"
        }

        fn check<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
            Box::pin(async { Ok(Verdict::Pass) })
        }
    }
}

/// A form instead.
#[resilient(lockout(5, "15m", key = account("form:username")), lockout(5, "15m", key = account("form:email")))]
#[handler]
async fn form() {}

#[resilient(
    deadline = "2s",
    rate_limit(1_000, "1d", key = global, algorithm = "fixed_window", on_outage = "fail_local", name = "daily", local_share = "25%"),
    rate_limit(30u32, 60u32, key = ip, algorithm = "sliding_window", on_outage = "fail_open", deadline = "80ms",),
    rate_limit(30, "1m", key = user, on_outage = "fail_closed", cost = 30),
    rate_limit(100, "1m", key = user, algorithm = "token_bucket", burst = 10u32, cost = 10),
    rate_limit(100, "1h", key = user, algorithm = "token_bucket", burst = 100, cost = 1),
    rate_limit(100, "1d", key = user, algorithm = "token_bucket"),
    rate_limit(100, "1d", key = keys::device, mode = "observe"),
    rate_limit(100, "1d", key = crate::keys::device, mode = "enforce"),
    rate_limit(100, "1d", key = by_path),
    rate_limit(key = header("X-Tenant"), 30, "1h"),
    lockout(5, "15m", key = account("json:/username")),
    lockout(5u32, "1m, 5m,15m, 1h", key = account("json:/email"), on_outage = "fail_closed", deadline = "100ms",),
    lockout(key = account("json:/a~1b/0/~0"), 1, 1, on_outage = "fail_open", mode = "observe"),
    lockout(1_000, "366d", key = ip, on_outage = "fail_local", name = "login/address", mode = "enforce"),
    lockout(20, 900, key = user),
    lockout(20, 900, key = crate::keys::device),
    guard(guards::COUNTER),
    guard(self::guards::deep::OTHER,),
    guard(guards::Always::<1>),
    guard(crate::guards::Always::<2>),
    auth("fail_closed", header = "X-Api-Key", deadline = "150ms"),
    concurrency(queue_timeout = "100ms", 64, adaptive = true, queue = 16u32,),
    priority = "critical",
    breaker = "per_operation",
    flag("checkout", default = false),
    flag("beta", default = true, blocks_when = "off", deadline = "100ms", stale = "30s"),
    flag("sale", blocks_when = "on", default = false),
    flag("trial", default = false, mode = "observe"),
    flag("tried", default = false, mode = "enforce"),
)]
#[handler]
async fn everything(Identity(user): Identity) -> String {
    user
}

#[resilient(auth = "fail_closed", breaker = "shared")]
#[handler]
async fn shared() {}

#[resilient(auth("fail_closed"), breaker = "payments/eu")]
#[handler]
async fn named() {}

#[resilient(concurrency(1))]
#[handler]
async fn one_at_a_time() {}

#[resilient(priority = "background", concurrency(1_000_000, queue = 1, adaptive = false))]
#[handler]
async fn background() {}

#[resilient(deadline = "1ms")]
#[poem::handler]
async fn fast() {}

#[resilience::resilient(deadline = "1h")]
#[handler]
async fn slow() {}

fn main() {
    let _ = poem::Route::new()
        .at("/everything", poem::get(everything))
        .at("/shared", poem::get(shared))
        .at("/named", poem::get(named))
        .at("/one_at_a_time", poem::get(one_at_a_time))
        .at("/background", poem::get(background))
        .at("/fast", poem::get(fast))
        .at("/slow", poem::get(slow));
}
