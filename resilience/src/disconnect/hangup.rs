//! The handler's side: when has its client gone?

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use poem::{FromRequest, Request, RequestBody, Result};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::connections::{self, Ends};
use crate::{
    deadline::{self, DeadlineExceeded},
    error::Error,
};

/// Tells when the client of a request has gone, for work that outlives its handler or that the chain does not drop.
///
/// It extracts from every request. Where nobody watches the connection, because its listener was not told to
/// [`cancel_on_disconnect`](super::DisconnectExt::cancel_on_disconnect) or is a Unix socket, the client never goes.
///
/// ```
/// use poem::handler;
/// use resilience::disconnect::Hangup;
///
/// #[handler]
/// async fn export(hangup: Hangup) {
///     tokio::spawn(async move {
///         tokio::select! {
///             () = hangup.gone() => (), // nobody will fetch it
///             () = write_export() => (),
///         }
///     });
/// }
/// # async fn write_export() {}
/// ```
#[derive(Clone)]
pub struct Hangup(Option<CancellationToken>);

impl Hangup {
    /// `None` if nobody watches the request's connection.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let ends = || Ends::of(request.local_addr(), request.remote_addr());
        connections::find(ends).map(|gone| Self(Some(gone)))
    }

    /// Completes when the client has gone, at once if it has already. Never completes if nobody watches.
    ///
    /// # Cancel safety
    ///
    /// It is cancel safe: a later call completes all the same.
    pub async fn gone(&self) {
        match &self.0 {
            Some(gone) => gone.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the client has gone. Never so if nobody watches.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

impl fmt::Debug for Hangup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hangup")
            .field("watched", &self.0.is_some())
            .field("gone", &self.is_gone())
            .finish()
    }
}

impl<'a> FromRequest<'a> for Hangup {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(Self::of(request).unwrap_or(Self(None)))
    }
}

/// Polls `future` until it is ready or the client has gone; from then on it is not polled again.
pub(crate) fn unless_gone<F: Future>(hangup: Option<&Hangup>, future: F) -> UnlessGone<F> {
    UnlessGone {
        gone: hangup
            .and_then(|hangup| hangup.0.clone())
            .map(|gone| Box::pin(gone.cancelled_owned())),
        future,
    }
}

/// The same within a budget of time; where that is zero, nothing is begun.
pub(crate) fn unless_gone_within<F: Future>(
    hangup: Option<&Hangup>,
    budget: Duration,
    future: F,
) -> impl Future<Output = std::result::Result<std::result::Result<F::Output, DeadlineExceeded>, Error>> {
    // Boxed right here, and not in the async block, which would hold the future once more.
    let work = (!budget.is_zero()).then(|| unless_gone(hangup, Box::pin(deadline::scope(budget, future))));
    async move {
        match work {
            Some(work) => work.await,
            None => Ok(Err(DeadlineExceeded)),
        }
    }
}

pin_project_lite::pin_project! {
    /// A future of its own rather than an async fn, which would hold the handler's future twice.
    pub(crate) struct UnlessGone<F> {
        gone: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for UnlessGone<F> {
    type Output = std::result::Result<F::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // First: a handler is not begun for a client that went while the guards were asked.
        if let Some(gone) = this.gone
            && gone.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Error::client_closed_request()));
        }
        this.future.poll(cx).map(Ok)
    }
}
