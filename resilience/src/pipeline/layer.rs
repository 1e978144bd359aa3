//! How layers stand around a call and around each other.

use std::{future::Future, marker::PhantomData};

use super::{
    context::Context,
    error::PipelineError,
    kinds::{Kinds, Rejections},
};

/// One strategy of a pipeline: decides whether, when and how often what stands inside it runs.
///
/// The built-in ones are written with the methods of [`Builder`](super::Builder); one of your own goes in with
/// [`Builder::layer`](super::Builder::layer):
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use resilience::pipeline::{Context, Kinds, Layer, Next, Pipeline, PipelineError};
///
/// /// Counts the calls that come by.
/// #[derive(Default)]
/// struct Count(AtomicU32);
///
/// impl<T: Send, E: Send, K: Kinds> Layer<T, E, K> for Count {
///     type Kinds = K;
///
///     async fn around(&self, _: &Context, next: &mut impl Next<T, E, K>) -> Result<T, PipelineError<E, K>> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         next.run().await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let pipeline = Pipeline::builder().retry(2).layer(Count::default()).build();
/// assert!(pipeline.call(|| async { Ok::<_, ()>(7) }).await.is_ok());
/// # }
/// ```
///
/// # Cancel safety
///
/// A caller may drop the future at any await. Whatever a layer holds then (a permit, a place in a queue) goes back by its
/// own `Drop`.
pub trait Layer<T, E, K: Kinds>: Send + Sync {
    /// What can come out of this layer when what stands inside it answers `T`, `E` or one of `K`.
    type Kinds: Kinds;

    /// Runs `next`, once or several times or not at all.
    fn around(
        &self,
        context: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> impl Future<Output = Result<T, PipelineError<E, Self::Kinds>>> + Send;
}

/// What stands inside a layer: the layers after it, and the call.
pub trait Next<T, E, K: Kinds>: Send {
    /// Runs it once. May be called again when the future has ended or was dropped.
    fn run(&mut self) -> impl Future<Output = Result<T, PipelineError<E, K>>> + Send;
}

/// A pipeline without layers: the call as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start;

impl<T: Send, E: Send, K: Kinds> Layer<T, E, K> for Start {
    type Kinds = K;

    fn around(
        &self,
        _: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> impl Future<Output = Result<T, PipelineError<E, K>>> + Send {
        next.run()
    }
}

/// Two layers, the second inside the first; a layer itself.
#[derive(Clone, Copy, Debug)]
pub struct Stack<Outer, Inner> {
    pub(super) outer: Outer,
    pub(super) inner: Inner,
}

impl<T, E, K, Outer, Inner> Layer<T, E, K> for Stack<Outer, Inner>
where
    T: Send,
    E: Send,
    K: Kinds,
    Inner: Layer<T, E, K>,
    Outer: Layer<T, E, Inner::Kinds>,
{
    type Kinds = Outer::Kinds;

    async fn around(
        &self,
        context: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> Result<T, PipelineError<E, Self::Kinds>> {
        let mut inside = Inside {
            layer: &self.inner,
            context,
            next,
            kinds: PhantomData,
        };
        self.outer.around(context, &mut inside).await
    }
}

/// A layer that may be left out at run time. What can come out is the same with it and without.
impl<T, E, K, L> Layer<T, E, K> for Option<L>
where
    T: Send,
    E: Send,
    K: Kinds,
    L: Layer<T, E, K>,
    K::Timeout: Into<<L::Kinds as Kinds>::Timeout>,
    K::Open: Into<<L::Kinds as Kinds>::Open>,
    K::Overloaded: Into<<L::Kinds as Kinds>::Overloaded>,
    K::RateLimited: Into<<L::Kinds as Kinds>::RateLimited>,
    K::PermitLimit: Into<<L::Kinds as Kinds>::PermitLimit>,
{
    type Kinds = L::Kinds;

    async fn around(
        &self,
        context: &Context,
        next: &mut impl Next<T, E, K>,
    ) -> Result<T, PipelineError<E, Self::Kinds>> {
        match self {
            Some(layer) => layer.around(context, next).await,
            None => next.run().await.map_err(PipelineError::widen::<Self::Kinds>),
        }
    }
}

/// A layer with what stands inside it: the next of the layer outside.
struct Inside<'a, L, N, K> {
    layer: &'a L,
    context: &'a Context,
    next: &'a mut N,
    kinds: PhantomData<fn() -> K>,
}

impl<T, E, K, L, N> Next<T, E, L::Kinds> for Inside<'_, L, N, K>
where
    K: Kinds,
    L: Layer<T, E, K>,
    N: Next<T, E, K>,
{
    fn run(&mut self) -> impl Future<Output = Result<T, PipelineError<E, L::Kinds>>> + Send {
        self.layer.around(self.context, self.next)
    }
}

/// The user's call, innermost of all. Nothing but its own error comes out of it.
pub(super) struct Call<F>(pub(super) F);

impl<T, E, F, Fut> Next<T, E, Rejections> for Call<F>
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
{
    async fn run(&mut self) -> Result<T, PipelineError<E, Rejections>> {
        (self.0)().await.map_err(PipelineError::Inner)
    }
}
