//! Listeners whose connections are watched.

use std::io;

use poem::{
    http::uri::Scheme,
    listener::{Acceptor, Listener},
    web::{LocalAddr, RemoteAddr},
};

use super::{
    connections::{Connection, Ends},
    io::WatchedIo,
};

/// Makes a listener notice when its clients go.
pub trait DisconnectExt: Listener + Sized {
    /// Drops guarded handlers of this listener's connections when their client has gone.
    ///
    /// TLS may be added before or after it. What replaces a connection's addresses, such as the PROXY protocol, belongs
    /// before it. One in a stack of listeners is enough: with two, each connection looks like two of the same addresses,
    /// and none is watched. For an acceptor there is [`CancelOnDisconnect::new`].
    #[must_use]
    fn cancel_on_disconnect(self) -> CancelOnDisconnect<Self> {
        CancelOnDisconnect::new(self)
    }
}

impl<L: Listener> DisconnectExt for L {}

/// A listener or an acceptor whose connections are watched.
#[derive(Clone, Debug)]
pub struct CancelOnDisconnect<T> {
    inner: T,
}

impl<T> CancelOnDisconnect<T> {
    /// Watches the connections of a listener, or of an acceptor that is ready.
    ///
    /// ```
    /// use poem::{Server, listener::TcpAcceptor};
    /// use resilience::disconnect::CancelOnDisconnect;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// let server = Server::new_with_acceptor(CancelOnDisconnect::new(TcpAcceptor::from_tokio(socket)?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(inner: T) -> Self {
        Self { inner }
    }
}

impl<L: Listener> Listener for CancelOnDisconnect<L> {
    type Acceptor = CancelOnDisconnect<L::Acceptor>;

    async fn into_acceptor(self) -> io::Result<Self::Acceptor> {
        self.inner.into_acceptor().await.map(CancelOnDisconnect::new)
    }
}

impl<A: Acceptor> Acceptor for CancelOnDisconnect<A> {
    type Io = WatchedIo<A::Io>;

    fn local_addr(&self) -> Vec<LocalAddr> {
        self.inner.local_addr()
    }

    async fn accept(&mut self) -> io::Result<(Self::Io, LocalAddr, RemoteAddr, Scheme)> {
        let (io, local, remote, scheme) = self.inner.accept().await?;
        let connection = Ends::of(&local, &remote).map(Connection::open);
        Ok((WatchedIo::new(io, connection), local, remote, scheme))
    }
}
