//! Integration tests, a module per subject.

mod chain;
mod redis_store;
mod store_contract;
