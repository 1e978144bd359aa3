//! What [`#[outbound]`](macro@crate::outbound) expands to: constant data, and one call.
//!
//! Public for generated code, and for nobody to write by hand: whoever wants this in an expression builds a
//! [`Pipeline`](crate::pipeline::Pipeline).

use std::{future::Future, pin::Pin};

use crate::{
    dependency::Dependencies,
    error::Error,
    pipeline::{Bulkhead, Deadline, Pipeline, Retries},
};

mod functions;
mod layers;
mod spec;

use self::{
    functions::By,
    layers::{Counted, Late, Timed},
};
pub use self::{
    functions::{Again, AnswersFor, Judges, NoFallback, TakesRejections, copy},
    spec::{Outbound, OutboundBulkhead, OutboundRetry},
};

/// The attempts of a call, of which the compiler knows no more than what they answer.
///
/// With their own types it would look through fns that call each other down to its recursion limit, and would take from
/// the fallback what the fn returns.
pub struct Attempts<'a, T, E> {
    next: Box<dyn FnMut() -> Attempt<'a, T, E> + Send + 'a>,
    reject: fn(Error) -> E,
}

type Attempt<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// One attempt.
pub fn once<'a, T, E, Fut>(attempt: Fut) -> Attempts<'a, T, E>
where
    E: TakesRejections,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
{
    let mut attempt = Some(attempt);
    again(move || attempt.take().expect("a call without retries has one attempt"))
}

/// Attempts with a future of its own for each.
pub fn again<'a, T, E, F, Fut>(mut attempt: F) -> Attempts<'a, T, E>
where
    E: TakesRejections,
    F: FnMut() -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
{
    Attempts {
        next: Box::new(move || Box::pin(attempt())),
        reject: E::from,
    }
}

/// Makes a call.
pub fn call<'a, T, E, C, B>(
    spec: &'static Outbound,
    attempts: Attempts<'a, T, E>,
    classify: C,
    fallback: B,
) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>
where
    T: Send + 'a,
    E: Send + 'a,
    C: Judges<T, E> + 'a,
    B: AnswersFor<T, E> + Send + 'a,
{
    Box::pin(async move {
        // By name at each call: which breaker a name stands for depends on the registry around this very call.
        let dependencies = Dependencies::current();
        let judge = By(classify);
        let late = Late::default();
        let breaker = spec.breaker(&dependencies).map(|breaker| Counted {
            breaker,
            classifier: judge,
            late: &late,
        });
        let pipeline = Pipeline::builder()
            .layer(spec.timeout.map(Deadline::new))
            .layer(spec.retry(&dependencies).map(|retry| Retries::new(retry, judge)))
            .layer(breaker)
            .layer(spec.bulkhead(&dependencies).map(|limit| Bulkhead::new(limit, judge)))
            .layer(Timed::new(spec.attempt_timeout, spec.timeout, &late))
            .build();
        match pipeline.call(attempts.next).await {
            Ok(value) => Ok(value),
            Err(error) => {
                let error = error.split().unwrap_or_else(attempts.reject);
                fallback.answer(error).await
            }
        }
    })
}

/// Nothing, of the type that the fn returns: so that `?` and `return` in the body know it.
#[must_use]
pub const fn none<R>() -> Option<R> {
    None
}
