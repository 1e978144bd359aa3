//! Integration tests, a module per subject.

mod redis_store;
mod store_contract;
