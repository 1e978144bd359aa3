//! What the user's fns and types have to be, with the words of the compiler when they are not.
//!
//! The implementations are not recommended: without that the compiler would explain them and not the attribute.

use std::future::Future;

use crate::{
    error::Error,
    pipeline::{AnyError, Classify, Verdict},
};

/// An error type that can hold our rejections.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that a call was refused or late",
    label = "this error type needs `From<resilience::Error>`",
    note = "`#[outbound]` answers with the fn's own error type when the circuit is open, the time is over or all places \
            are taken: write `impl From<resilience::Error> for {Self}`, or return `resilience::Error`, `poem::Error`, \
            `anyhow::Error` or `Box<dyn std::error::Error + Send + Sync>`, which have it"
)]
pub trait TakesRejections: From<Error> + Send {}

#[diagnostic::do_not_recommend]
impl<E: From<Error> + Send> TakesRejections for E {}

/// A parameter of which each attempt gets one of its own.
#[diagnostic::on_unimplemented(
    message = "`retry` needs a copy of this argument for each attempt, and `{Self}` is not `Clone`",
    label = "`{Self}` is used up by the first attempt",
    note = "take it by reference, derive `Clone` for it, or remove `retry`"
)]
pub trait Again: Clone {}

#[diagnostic::do_not_recommend]
impl<T: Clone> Again for T {}

/// A parameter for the next attempt.
pub fn copy<T: Again>(parameter: &T) -> T {
    parameter.clone()
}

/// What answers in an error's place.
#[diagnostic::on_unimplemented(
    message = "`fallback` needs an `async fn(E) -> Result<T, E>` with the `T` and `E` of this fn",
    label = "not an `async fn({E}) -> Result<{T}, {E}>`",
    note = "it is called with the error, in whose place it answers: `async fn fallback(error: {E}) -> Result<{T}, {E}>`"
)]
pub trait AnswersFor<T, E> {
    /// The answer in place of `error`.
    fn answer(self, error: E) -> impl Future<Output = Result<T, E>> + Send;
}

#[diagnostic::do_not_recommend]
impl<T, E, F, Fut> AnswersFor<T, E> for F
where
    F: FnOnce(E) -> Fut,
    Fut: Future<Output = Result<T, E>> + Send,
{
    fn answer(self, error: E) -> impl Future<Output = Result<T, E>> + Send {
        self(error)
    }
}

/// No fallback: the error stays.
#[derive(Clone, Copy, Debug)]
pub struct NoFallback;

#[diagnostic::do_not_recommend]
impl<T: Send, E: Send> AnswersFor<T, E> for NoFallback {
    async fn answer(self, error: E) -> Result<T, E> {
        Err(error)
    }
}

/// What judges answers.
#[diagnostic::on_unimplemented(
    message = "`classify` needs a `fn(Result<&T, &E>) -> Verdict` with the `T` and `E` of this fn",
    label = "not a `fn(Result<&{T}, &{E}>) -> Verdict`",
    note = "it sees the answer of each attempt: `fn classify(answer: Result<&{T}, &{E}>) -> resilience::pipeline::Verdict`"
)]
pub trait Judges<T, E>: Copy + Send + Sync {
    /// The verdict on an answer.
    fn judge(&self, answer: Result<&T, &E>) -> Verdict;
}

#[diagnostic::do_not_recommend]
impl<T, E, F> Judges<T, E> for F
where
    F: Fn(Result<&T, &E>) -> Verdict + Copy + Send + Sync,
{
    fn judge(&self, answer: Result<&T, &E>) -> Verdict {
        self(answer)
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> Judges<T, E> for AnyError {
    fn judge(&self, answer: Result<&T, &E>) -> Verdict {
        self.classify(answer)
    }
}

/// What judges answers, as the layers of a pipeline want it.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<C>(pub(super) C);

impl<T, E, C: Judges<T, E>> Classify<T, E> for By<C> {
    fn classify(&self, answer: Result<&T, &E>) -> Verdict {
        self.0.judge(answer)
    }
}
