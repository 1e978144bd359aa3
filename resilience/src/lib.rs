//! Keeps poem services safe and up while Redis, their callers or their dependencies misbehave.

pub mod breaker;
pub mod clock;
pub mod guard;
pub mod policy;
pub mod store;
