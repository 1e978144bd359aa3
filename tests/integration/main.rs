//! Integration tests, a module per subject.

mod chain;
mod chain_model;
mod instances;
mod limits;
mod lockout_api;
mod outage;
mod outbound;
mod redis_store;
mod store_contract;
