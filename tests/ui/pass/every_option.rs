//! Every guard with every option, in any order, with and without trailing commas.

use poem::handler;
use resilience::{Identity, resilient};

mod guards {
    use std::sync::atomic::AtomicU64;

    use resilience::guard::Guard;

    #[derive(Debug)]
    pub struct Tenant {
        pub seen: AtomicU64,
    }
    impl Guard for Tenant {}

    pub static TENANT: Tenant = Tenant {
        seen: AtomicU64::new(0),
    };

    pub mod deep {
        pub static OTHER: super::Tenant = super::Tenant {
            seen: super::AtomicU64::new(0),
        };
    }
}

#[resilient(
    deadline = "2s",
    rate_limit(1_000, "1d", key = global, algorithm = "fixed_window", on_outage = "fail_local", name = "daily"),
    rate_limit(30u32, 60u32, key = ip, algorithm = "sliding_window", on_outage = "fail_open", deadline = "80ms",),
    rate_limit(30, "1m", key = user, on_outage = "fail_closed"),
    rate_limit(key = header("X-Tenant"), 30, "1h"),
    guard(guards::TENANT),
    guard(self::guards::deep::OTHER,),
    auth("fail_closed", header = "X-Api-Key", deadline = "150ms"),
    breaker = "per_operation",
    flag("checkout", default = false),
    flag("beta", default = true, blocks_when = "off", deadline = "100ms", stale = "30s"),
    flag("sale", blocks_when = "on", default = false),
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
        .at("/fast", poem::get(fast))
        .at("/slow", poem::get(slow));
}
