//! `#[outbound]`: what becomes of calls, under paused time.
//!
//! Every test has a registry of its own, so that the fns, which all tests share, have breakers and budgets of their own
//! in each.

mod attempts;
mod cancellation;
mod dependencies;
mod shared;
mod time;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use resilience::Dependencies;

/// What a dependency answered with, or why it was not asked.
#[derive(Clone, Debug, PartialEq)]
enum Failure {
    /// Says no, and would say it again.
    Declined,
    /// Out of order.
    Down,
    /// A rejection, by its code.
    Rejected(String),
}

impl From<resilience::Error> for Failure {
    fn from(error: resilience::Error) -> Self {
        Self::Rejected(error.code().to_owned())
    }
}

impl From<std::num::ParseIntError> for Failure {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Declined
    }
}

type Answer<T = u32> = Result<T, Failure>;

fn rejected(code: &str) -> Failure {
    Failure::Rejected(code.to_owned())
}

/// Counts how often something happened.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a test in a registry of its own.
async fn alone<F: Future>(test: impl FnOnce(Dependencies) -> F) -> F::Output {
    let dependencies = Dependencies::new();
    let test = test(dependencies.clone());
    dependencies.scope(test).await
}
