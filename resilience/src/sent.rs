//! What a response holds until it has been sent.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use poem::{
    Response,
    http::{StatusCode, header},
};
use tokio::{task::AbortHandle, time::Instant};

#[cfg(test)]
mod tests;

/// So many bytes are as good as sent once they are handed over.
const SENT_AT_ONCE: u64 = PIECE as u64;

/// The most that is handed over in one frame.
const PIECE: usize = 64 * 1024;

/// Drops `guard` when the body of `response` has been handed over to be sent, or is dropped: the client has gone, or the
/// answer has no body (HEAD, 204, 304). After `send_timeout` from now it is dropped in any case, whether or not anybody
/// asks for the body, which then ends in an error.
///
/// A body of up to 64 KiB that is complete already holds nothing, since a socket takes that much from whoever reads or not;
/// nor does an event stream or an upgrade. Size and trailers stay as they are; frames of more than 64 KiB are cut. It has to be called within a tokio
/// runtime.
pub(crate) fn hold_until_sent<G: Send + 'static>(mut response: Response, guard: G, send_timeout: Duration) -> Response {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS || is_event_stream(&response) {
        return response;
    }
    let mut body = BoxBody::from(response.take_body());
    if body.is_end_stream() {
        response.set_body(body);
        return response;
    }
    let mut next = None;
    let size = body.size_hint().exact();
    if size.is_some() {
        // One whose size is known may lie in memory: its first frame is its last, and need not be waited for. Whoever
        // polls next registers its own waker.
        match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) if body.is_end_stream() && size <= Some(SENT_AT_ONCE) && frame.is_data() => {
                response.set_body(frame.into_data().unwrap_or_default());
                return response;
            }
            Poll::Ready(frame) => next = Some(frame),
            Poll::Pending => (),
        }
    }
    let left = size.or_else(|| content_length(&response));
    let held = Arc::new(Held::new(guard));
    response.set_body(BoxBody::new(HoldingBody {
        inner: body,
        next,
        left,
        timer: expire_after(send_timeout, Arc::clone(&held)),
        held,
        ended: false,
    }));
    response
}

fn is_event_stream(response: &Response) -> bool {
    let content_type = response.content_type().unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}

fn content_length(response: &Response) -> Option<u64> {
    let length = response.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// A task and not a part of the body: nobody polls a body while its socket takes nothing.
fn expire_after<G: Send + 'static>(send_timeout: Duration, held: Arc<Held<G>>) -> AbortHandle {
    // One beyond the clock's range is no limit in practice.
    let at = Instant::now().checked_add(send_timeout);
    let timer = tokio::spawn(async move {
        match at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        held.expire();
    });
    timer.abort_handle()
}

/// What the body and its timer share.
struct Held<G>(Mutex<State<G>>);

struct State<G> {
    guard: Option<G>,
    expired: bool,
    /// Of whoever waits for a frame that may never come.
    waker: Option<Waker>,
}

impl<G> Held<G> {
    fn new(guard: G) -> Self {
        Self(Mutex::new(State {
            guard: Some(guard),
            expired: false,
            waker: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expire(&self) {
        let (guard, waker) = {
            let mut state = self.state();
            // A body that was handed over in the meantime is whole: there is nothing to break off.
            state.expired = state.guard.is_some();
            (state.guard.take(), state.waker.take())
        };
        // Not under the lock: both run code that is not ours.
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn release(&self) {
        let guard = self.state().guard.take();
        drop(guard);
    }
}

/// A body with something that lives until it is sent.
struct HoldingBody<G> {
    inner: BoxBody<Bytes, io::Error>,
    /// What it gave when it was asked whether it lies in memory, and what is left of a frame that was cut.
    next: Option<Option<io::Result<Frame<Bytes>>>>,
    /// Bytes that are still to come, if its size is known.
    left: Option<u64>,
    held: Arc<Held<G>>,
    timer: AbortHandle,
    ended: bool,
}

impl<G> HoldingBody<G> {
    fn release(&self) {
        self.timer.abort();
        self.held.release();
    }
}

impl<G: Send + 'static> Body for HoldingBody<G> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        {
            let mut state = self.held.state();
            if state.expired {
                drop(state);
                self.ended = true;
                return Poll::Ready(Some(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the response was not sent within its time",
                ))));
            }
            // Before the inner one is asked: the timer may fire meanwhile.
            if state.guard.is_some() && !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
        }
        let mut frame = match self.next.take() {
            Some(next) => next,
            None => std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx)),
        };
        match &mut frame {
            Some(Ok(frame)) => {
                // A frame is taken whole, however slowly it is sent: one of a size that matters goes in pieces.
                if let Some(data) = frame.data_mut()
                    && data.len() > PIECE
                {
                    self.next = Some(Some(Ok(Frame::data(data.split_off(PIECE)))));
                }
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.left = self.left.map(|left| left.saturating_sub(length));
                if self.left == Some(0) || self.is_end_stream() {
                    self.release();
                }
            }
            Some(Err(_)) => self.release(),
            None => {
                self.ended = true;
                self.release();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.next.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.inner.size_hint();
        if let Some(Some(Ok(frame))) = &self.next {
            let waiting = frame.data_ref().map_or(0, |data| data.len() as u64);
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(waiting));
            }
            hint.set_lower(hint.lower().saturating_add(waiting));
        }
        hint
    }
}

impl<G> Drop for HoldingBody<G> {
    fn drop(&mut self) {
        self.release();
    }
}
