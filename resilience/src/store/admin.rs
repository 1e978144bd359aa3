//! Writing what the guards read.

use super::StoreFuture;

/// Changes API keys and flags: what an operator does, never a request.
///
/// What is written here never expires.
///
/// # Errors
///
/// As for the [`Store`](super::Store)'s own operations. An API key that no request could present (empty, or longer than
/// 512 bytes) and an empty user, which no guard would accept, are refused.
pub trait StoreAdmin: super::Store {
    /// Lets `api_key` in as `user`, also if it was somebody else's before.
    fn add_api_key<'a>(&'a self, api_key: &'a str, user: &'a str) -> StoreFuture<'a, ()>;

    /// Locks `api_key` out; `false` if it was unknown.
    fn remove_api_key<'a>(&'a self, api_key: &'a str) -> StoreFuture<'a, bool>;

    /// Turns a flag on or off.
    fn set_flag<'a>(&'a self, name: &'a str, on: bool) -> StoreFuture<'a, ()>;

    /// Takes a flag's value away, so that it counts as never set; `false` if it was not.
    fn clear_flag<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool>;
}
