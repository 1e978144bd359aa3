//! Keeps [poem] services safe and up while Redis, their callers or their dependencies misbehave.
//!
//! One attribute above a handler becomes a chain of guards in front of it. Each failure has a decided answer:
//! authentication fails closed, flags fall back to their safe default, rate limits fail open unless told otherwise.
//!
//! ```no_run
//! use poem::{EndpointExt, Route, Server, get, handler, listener::TcpListener, web::Json};
//! use resilience::{Identity, Resilience, resilient};
//!
//! #[resilient(
//!     auth = "fail_closed",
//!     flag("checkout", default = false),
//!     rate_limit(30, 60),
//! )]
//! #[handler]
//! async fn checkout(Identity(user): Identity) -> Json<serde_json::Value> {
//!     Json(serde_json::json!({ "ok": true, "user": user }))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let resilience = Resilience::builder().redis("redis://127.0.0.1:6379").build()?;
//!     let app = Route::new().at("/api/checkout", get(checkout)).with(resilience);
//!     Server::new(TcpListener::bind("127.0.0.1:3000")).run(app).await?;
//!     Ok(())
//! }
//! ```
//!
//! What the attribute takes is listed at [`resilient`], what the runtime takes at [`Builder`]. [`breaker`] and
//! [`deadline`] also stand alone.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `tls` | `rediss://` URLs, through rustls |
//! | `metrics` | outcomes, breaker states and store latency through the `metrics` facade |
//! | `reqwest` | the module `pipeline::http`: what `reqwest`'s answers say to a pipeline, and the deadline as a header |
//! | `testing` | the module `testing`: a store and a clock that a test drives |

pub mod body;
pub mod breaker;
pub mod client;
pub mod clock;
pub mod concurrency;
pub mod deadline;
pub mod disconnect;
pub mod error;
pub mod guard;
pub mod inbound;
pub mod lockout;
pub mod pipeline;
// Public for the code that the attributes generate, and not for anybody to write by hand.
#[doc(hidden)]
pub mod outbound;
#[doc(hidden)]
pub mod policy;
pub mod sharing;
pub mod store;

mod asking;
mod bound;
mod builder;
mod chain;
mod dependency;
mod fields;
mod install;
mod limits;
mod observe;
#[cfg(feature = "metrics")]
mod publish;
mod question;
mod reachable;
mod registry;
mod runtime;
mod sent;
mod standing;
mod store_breaker;
mod summary;
mod trail;
mod unlock;

#[doc(hidden)]
pub mod __private;

pub use resilience_macros::{outbound, resilient};

pub use crate::{
    body::ErrorBody,
    builder::{BuildError, Builder, LimitsFileError},
    client::ProxyHeader,
    dependency::{Dependencies, DependencyError},
    error::{Error, describe},
    guard::{auth::Identity, lockout::LoginOutcome},
    install::ResilienceEndpoint,
    limits::{LimitInForce, LimitSource, Limits, LimitsError, UndefinedLimit},
    policy::{Algorithm, BreakerChoice, InvalidLimit, Limit, OnOutage},
    runtime::{BreakerView, Health, RateLimitHeaders, Resilience, VerifyError},
    summary::{GuardSummary, PolicySummary},
    unlock::UnlockError,
};

/// What tests of guarded services need: a store whose answers, errors and delays a test sets, and a clock that it moves.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::{
        clock::Clock,
        store::testing::{Answer, BoardCalls, Calls, ScriptedStore},
    };
}
