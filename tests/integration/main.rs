//! Integration tests, a module per subject.

mod chain;
mod chain_model;
mod limits;
mod outage;
mod redis_store;
mod store_contract;
