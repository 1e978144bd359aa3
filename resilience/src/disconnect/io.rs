//! A connection's IO that notices its close.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::Connection;

/// The IO of a watched connection: what is read and written is the inner one's.
#[derive(Debug)]
pub struct WatchedIo<Io> {
    inner: Io,
    connection: Option<Connection>,
}

impl<Io> WatchedIo<Io> {
    pub(super) fn new(inner: Io, connection: Option<Connection>) -> Self {
        Self { inner, connection }
    }

    fn hang_up(&self) {
        if let Some(connection) = &self.connection {
            connection.hang_up();
        }
    }

    /// Passes on what an operation came to; an error is the connection's end.
    fn noticed<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &outcome {
            self.hang_up();
        }
        outcome
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for WatchedIo<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (had, room) = (buf.filled().len(), buf.remaining());
        let outcome = Pin::new(&mut self.inner).poll_read(cx, buf);
        let is_end = matches!(outcome, Poll::Ready(Ok(()))) && room > 0 && buf.filled().len() == had;
        if is_end {
            self.hang_up();
        }
        self.noticed(outcome)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for WatchedIo<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.noticed(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.noticed(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.noticed(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.noticed(outcome)
    }
}
