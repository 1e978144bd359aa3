//! Integration tests, a module per subject.

mod chain;
mod chain_model;
mod disconnect;
mod instances;
mod limits;
mod lockout_api;
mod outage;
mod redis_store;
mod store_contract;
