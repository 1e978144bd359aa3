//! Handlers whose caller has gone are dropped.
//!
//! On HTTP/1 poem runs a handler to its end after its client has closed the connection. A listener that is told to notice
//! the close ends it: the chain drops the handler's future, and with it all that the future holds.
//!
//! ```no_run
//! use poem::{Route, Server, listener::TcpListener};
//! use resilience::disconnect::DisconnectExt;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), std::io::Error> {
//! let listener = TcpListener::bind("127.0.0.1:3000").cancel_on_disconnect();
//! Server::new(listener).run(Route::new()).await
//! # }
//! ```
//!
//! A client has gone when the connection was closed or reset, or when a write to it failed. One that only closes its
//! sending side counts as gone too: on the wire the two look the same. An attempt that a lockout has counted stays
//! counted, and so do quotas; breakers take it as neutral.
//!
//! What is not noticed:
//!
//! - a close behind a second request that the client has sent already (HTTP/1 pipelining): the server does not read on
//!   before it has answered the first
//! - a close of a Unix socket: its peer has no address by which the handler could find its connection
//! - a proxy's client: whether the connection to this service is closed then is the proxy's choice
//!
//! On HTTP/2 poem drops the handler itself when its stream is reset, with this listener and without it.

mod connections;
mod hangup;
mod io;
mod listener;

pub(crate) use self::hangup::{unless_gone, unless_gone_within};
pub use self::{
    hangup::Hangup,
    io::WatchedIo,
    listener::{CancelOnDisconnect, DisconnectExt},
};
