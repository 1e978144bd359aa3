//! What can come out of a pipeline, as a type.

use std::{convert::Infallible, error::Error as StdError, fmt, marker::PhantomData};

use super::rate_limit::{PermitLimitExceeded, RateLimited};
use crate::{breaker::CircuitOpen, concurrency::Overloaded, deadline::DeadlineExceeded};

/// The rejections that a pipeline can answer with: for each kind its type, or [`Infallible`] where no layer makes one.
///
/// [`Rejections`] is the implementation; the trait is what generic code names.
pub trait Kinds: Send + Sync + 'static {
    /// Out of time.
    type Timeout: Rejection + Into<DeadlineExceeded>;
    /// The circuit is open.
    type Open: Rejection + Into<CircuitOpen>;
    /// No place, or none in time.
    type Overloaded: Rejection + Into<Overloaded>;
    /// Over the rate limit.
    type RateLimited: Rejection + Into<RateLimited>;
    /// A cost that the rate limit can never admit.
    type PermitLimit: Rejection + Into<PermitLimitExceeded>;
}

/// What every rejection is, [`Infallible`] included: an error that can be kept, sent and found by downcasting.
pub trait Rejection: StdError + Clone + Send + Sync + 'static {}

impl<R: StdError + Clone + Send + Sync + 'static> Rejection for R {}

/// A set of [`Kinds`]. A kind that is [`Infallible`] cannot come out, and a `match` by value need not name it.
///
/// A set is the same type whatever order its layers were written in. [`AnyRejection`] has all kinds.
pub struct Rejections<
    Timeout = Infallible,
    Open = Infallible,
    Overloaded = Infallible,
    RateLimited = Infallible,
    PermitLimit = Infallible,
>(PhantomData<(Timeout, Open, Overloaded, RateLimited, PermitLimit)>);

/// Every kind: what the fallback sees, and what any pipeline's error can be [widened](super::PipelineError::widen) to.
pub type AnyRejection = Rejections<DeadlineExceeded, CircuitOpen, Overloaded, RateLimited, PermitLimitExceeded>;

impl<Timeout, Open, Overload, RateLimit, PermitLimit> Kinds
    for Rejections<Timeout, Open, Overload, RateLimit, PermitLimit>
where
    Timeout: Rejection + Into<DeadlineExceeded>,
    Open: Rejection + Into<CircuitOpen>,
    Overload: Rejection + Into<Overloaded>,
    RateLimit: Rejection + Into<RateLimited>,
    PermitLimit: Rejection + Into<PermitLimitExceeded>,
{
    type Timeout = Timeout;
    type Open = Open;
    type Overloaded = Overload;
    type RateLimited = RateLimit;
    type PermitLimit = PermitLimit;
}

impl<Timeout, Open, Overload, RateLimit, PermitLimit> fmt::Debug
    for Rejections<Timeout, Open, Overload, RateLimit, PermitLimit>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rejections")
    }
}

/// Adds out-of-time to a set.
pub type OrTimeout<K> = Rejections<
    DeadlineExceeded,
    <K as Kinds>::Open,
    <K as Kinds>::Overloaded,
    <K as Kinds>::RateLimited,
    <K as Kinds>::PermitLimit,
>;

/// Adds the open circuit to a set.
pub type OrOpen<K> = Rejections<
    <K as Kinds>::Timeout,
    CircuitOpen,
    <K as Kinds>::Overloaded,
    <K as Kinds>::RateLimited,
    <K as Kinds>::PermitLimit,
>;

/// Adds the full bulkhead to a set, and out-of-time, which may come in its queue.
pub type OrOverloaded<K> =
    Rejections<DeadlineExceeded, <K as Kinds>::Open, Overloaded, <K as Kinds>::RateLimited, <K as Kinds>::PermitLimit>;

/// Adds the rate limit's refusal to a set.
pub type OrRateLimited<K> = Rejections<
    <K as Kinds>::Timeout,
    <K as Kinds>::Open,
    <K as Kinds>::Overloaded,
    RateLimited,
    <K as Kinds>::PermitLimit,
>;

/// Adds both refusals of a rate limit with costs to a set.
pub type OrCostLimited<K> =
    Rejections<<K as Kinds>::Timeout, <K as Kinds>::Open, <K as Kinds>::Overloaded, RateLimited, PermitLimitExceeded>;

// What cannot exist can become anything: so a set widens to a larger one.
impl From<Infallible> for DeadlineExceeded {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Infallible> for CircuitOpen {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Infallible> for Overloaded {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Infallible> for RateLimited {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Infallible> for PermitLimitExceeded {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
