//! Integration tests, a module per subject.

mod outage;
mod redis_store;
mod store_contract;
