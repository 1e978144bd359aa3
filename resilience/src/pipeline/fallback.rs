//! An answer in place of an error.

use std::future::Future;

use super::{
    context::Context,
    error::PipelineError,
    kinds::{AnyRejection, Kinds, Rejections},
    layer::{Layer, Next},
};

/// Answers for everything inside it. See [`Builder::fallback`](super::Builder::fallback).
#[derive(Clone, Copy, Debug)]
pub struct Fallback<F>(pub(super) F);

impl<T, E, K, F, Fut> Layer<T, E, K> for Fallback<F>
where
    T: Send,
    E: Send,
    K: Kinds,
    F: Fn(PipelineError<E>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, E>> + Send,
{
    type Kinds = Rejections;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        match next.run().await {
            Ok(value) => Ok(value),
            Err(error) => (self.0)(error.widen::<AnyRejection>())
                .await
                .map_err(PipelineError::Inner),
        }
    }
}

/// May answer for what is inside it, or pass an error on. See [`Builder::recover`](super::Builder::recover).
#[derive(Clone, Copy, Debug)]
pub struct Recover<F>(pub(super) F);

impl<T, E, K, F, Fut> Layer<T, E, K> for Recover<F>
where
    T: Send,
    E: Send,
    K: Kinds,
    F: Fn(PipelineError<E>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, PipelineError<E>>> + Send,
{
    type Kinds = AnyRejection;

    async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, Self::Kinds>> {
        match next.run().await {
            Ok(value) => Ok(value),
            Err(error) => (self.0)(error.widen()).await,
        }
    }
}
