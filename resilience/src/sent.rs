//! Holding on to something until an answer has been sent.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::BoxBody};
use poem::{
    Body, Response,
    http::{StatusCode, header},
};
use tokio::{
    task::AbortHandle,
    time::{Instant, Sleep, sleep_until},
};

/// Drops `guard` when the body of `response` has been handed over whole, is dropped, or `send_timeout` after its first
/// part, whichever comes first. Then a body that is not at its end ends in an error.
///
/// What streams without an end (events, upgraded connections) gives `guard` back at once. The body's length, its parts and
/// its trailers stay what they are.
pub(crate) fn hold_until_sent<G: Send + Sync + Unpin + 'static>(
    mut response: Response,
    guard: G,
    send_timeout: Duration,
) -> Response {
    if is_endless(&response) {
        return response;
    }
    let body = BoxBody::<Bytes, io::Error>::from(response.take_body());
    if body.is_end_stream() {
        response.set_body(Body::from(body));
        return response;
    }
    let sending = Sending {
        body,
        held: Held::Here(guard),
        send_timeout,
    };
    response.set_body(Body::from(sending.boxed()));
    response
}

/// Whether nobody knows when its body will end.
fn is_endless(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        || content_type.is_some_and(|value| {
            let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
        })
}

struct Sending<G: Send + Sync + Unpin + 'static> {
    body: BoxBody<Bytes, io::Error>,
    held: Held<G>,
    send_timeout: Duration,
}

enum Held<G> {
    /// Nothing has been asked of the body. Most bodies are ready at once and whole, and need no timer.
    Here(G),
    /// In the hands of a timer too: while a connection is blocked nobody asks for more of the body.
    Timed(Timed<G>),
    Free,
}

struct Timed<G> {
    guard: Arc<Mutex<Option<G>>>,
    timer: AbortHandle,
    /// The same time, to end the body.
    expiry: Pin<Box<Sleep>>,
}

impl<G: Send + Sync + Unpin + 'static> Held<G> {
    /// Starts the timer.
    fn time(&mut self, send_timeout: Duration) {
        if !matches!(self, Self::Here(_)) {
            return;
        }
        let Self::Here(guard) = std::mem::replace(self, Self::Free) else {
            return;
        };
        let now = Instant::now();
        let at = now.checked_add(send_timeout).unwrap_or(now);
        let guard = Arc::new(Mutex::new(Some(guard)));
        let expiring = Arc::clone(&guard);
        let timer = tokio::spawn(async move {
            sleep_until(at).await;
            drop(take(&expiring));
        });
        *self = Self::Timed(Timed {
            guard,
            timer: timer.abort_handle(),
            expiry: Box::pin(sleep_until(at)),
        });
    }

    fn free(&mut self) {
        *self = Self::Free;
    }
}

impl<G> Drop for Timed<G> {
    fn drop(&mut self) {
        self.timer.abort();
        drop(take(&self.guard));
    }
}

/// Out of the lock, so that whatever its drop does finds it free.
fn take<G>(guard: &Mutex<Option<G>>) -> Option<G> {
    guard.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<G: Send + Sync + Unpin + 'static> HttpBody for Sending<G> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if let Held::Timed(timed) = &mut this.held
            && timed.expiry.as_mut().poll(cx).is_ready()
        {
            this.held.free();
            // Nothing more of it: its source is dropped as well.
            this.body = BoxBody::default();
            return Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the body took too long to be sent",
            ))));
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(_))) if !this.body.is_end_stream() => this.held.time(this.send_timeout),
            Poll::Ready(_) => this.held.free(),
            Poll::Pending => {
                this.held.time(this.send_timeout);
                if let Held::Timed(timed) = &mut this.held {
                    // To be woken by the timer as well; it was started only just, or was asked above.
                    let _pending = timed.expiry.as_mut().poll(cx);
                }
            }
        }
        Poll::Ready(ready!(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
