//! Integration tests, a module per subject.

mod breaker_admin;
mod chain;
mod chain_model;
mod disconnect;
mod errors;
mod inbound;
mod instances;
mod limits;
mod lockout_api;
mod outage;
mod outbound;
mod real_redis;
mod redis_store;
mod sharing;
mod slots;
mod store_contract;
