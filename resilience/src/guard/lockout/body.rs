//! The body of a login: read once, before the handler, and handed on to it untouched.

use std::{io::Cursor, time::Duration};

use poem::{
    Body, Request,
    http::{HeaderMap, header},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::timeout,
};

use crate::error::Error;

/// How much of a body is read for an account, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyBounds {
    /// In bytes.
    pub(crate) limit: usize,
    pub(crate) timeout: Duration,
}

/// The request's whole body. The request keeps it too, also one that is too large, too slow or broken: then with what
/// was read in front of what is still to come, for whoever lets the request pass all the same.
///
/// # Cancel safety
///
/// Not: the request has lost its body if it is dropped.
pub(super) async fn read(request: &mut Request, bounds: BodyBounds) -> Result<Vec<u8>, Error> {
    let too_large = || Error::body_too_large(bounds.limit);
    if claimed_length(request.headers()).is_some_and(|length| length > bounds.limit as u64) {
        return Err(too_large());
    }
    let mut body = request.take_body().into_async_read();
    let mut seen = Vec::new();
    let refused = match timeout(bounds.timeout, fill(&mut seen, &mut body, bounds.limit)).await {
        Ok(Ok(true)) => {
            request.set_body(seen.clone());
            return Ok(seen);
        }
        Ok(Ok(false)) => too_large(),
        Ok(Err(_broken)) => Error::account_unreadable(),
        Err(_elapsed) => Error::body_timeout(),
    };
    request.set_body(Body::from_async_read(Cursor::new(seen).chain(body)));
    Err(refused)
}

/// Reads to the end, which is `true`, or past the limit.
async fn fill(seen: &mut Vec<u8>, body: &mut (impl AsyncRead + Unpin), limit: usize) -> std::io::Result<bool> {
    while seen.len() <= limit {
        // Cancel safe: what was read is in `seen`.
        if body.read_buf(seen).await? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What `Content-Length` says: nothing to rely on, but enough for an early refusal.
fn claimed_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
