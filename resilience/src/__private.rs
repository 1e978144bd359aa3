//! The only surface that generated code names. Not part of the public API: it changes without notice.

pub use std::time::Duration;

pub use inventory;
pub use poem::{Endpoint, Request, Response, Result};

pub use crate::{
    chain::run,
    concurrency::Priority,
    guard::Guard,
    outbound::{NoFallback, Outbound, OutboundBulkhead, OutboundRetry, again, call, copy, none, once},
    pipeline::AnyError,
    policy::{
        AccountField, Algorithm, Auth, BreakerChoice, Concurrency, Flag, Key, KeyFn, Lockout, LockoutKey, Mode,
        OnOutage, Policy, RateLimit,
    },
    registry::Registered,
};

/// Makes a policy known to [`Resilience::policies`](crate::Resilience::policies).
#[doc(hidden)]
#[macro_export]
macro_rules! __register {
    ($policy:expr) => {
        $crate::__private::inventory::submit! { $crate::__private::Registered($policy) }
    };
}

pub use crate::__register as register;
