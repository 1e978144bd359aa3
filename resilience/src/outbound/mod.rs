//! What [`#[outbound]`](crate::outbound) expands to: constant data, and one call.
//!
//! Public for generated code, and for nobody to write by hand: whoever wants this in an expression builds a
//! [`Pipeline`](crate::pipeline::Pipeline).

use std::{future::Future, pin::Pin};

use crate::{
    dependency::Dependencies,
    pipeline::{Bulkhead, Deadline, Pipeline, Retries},
};

mod functions;
mod layers;
mod spec;

use self::{
    functions::By,
    layers::{Attempt, Counted, Late},
};
pub use self::{
    functions::{Again, AnswersFor, Judges, NoFallback, TakesRejections, copy},
    spec::{Outbound, OutboundBulkhead, OutboundRetry},
};

/// Makes a call that is never made again.
pub async fn once<T, E, C, B, Fut>(spec: &'static Outbound, classify: C, fallback: B, attempt: Fut) -> Result<T, E>
where
    T: Send,
    E: TakesRejections,
    C: Judges<T, E>,
    B: AnswersFor<T, E>,
    Fut: Future<Output = Result<T, E>> + Send,
{
    let mut attempt = Some(attempt);
    let only = move || attempt.take().expect("a call without retries has one attempt");
    again(spec, classify, fallback, only).await
}

/// Makes a call, with a future of its own for each attempt.
pub async fn again<T, E, C, B, F, Fut>(spec: &'static Outbound, classify: C, fallback: B, attempt: F) -> Result<T, E>
where
    T: Send,
    E: TakesRejections,
    C: Judges<T, E>,
    B: AnswersFor<T, E>,
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
{
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
        .layer(Attempt::new(spec.attempt_timeout, spec.timeout, &late))
        .build();
    // Without a type that the compiler looks into: fns with strategies call each other, and the layers of all of them in
    // one future soon exceed its recursion limit.
    let call: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(pipeline.call(attempt));
    match call.await {
        Ok(value) => Ok(value),
        Err(error) => fallback.answer(error.flatten()).await,
    }
}

/// Nothing, of the type that the fn returns: so that `?` and `return` in the body know it.
#[must_use]
pub const fn none<R>() -> Option<R> {
    None
}
