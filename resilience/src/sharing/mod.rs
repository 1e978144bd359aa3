//! Breakers that know what the other instances know.
//!
//! With [`share_breakers`](crate::Builder::share_breakers), the breakers of [`Dependencies`](crate::Dependencies) exchange
//! their openings through the store. What is counted stays in each process. What is shared is that a breaker has opened, when
//! and why; the right to probe, which one instance has at a time; and that it has closed.
//!
//! ```no_run
//! use resilience::{Resilience, sharing::Sharing};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # async fn charge() -> Result<(), std::io::Error> { Ok(()) }
//! let resilience = Resilience::builder()
//!     .redis("redis://127.0.0.1:6379")
//!     .share_breakers(Sharing::system("payments-team"))
//!     .build()?;
//! let payments = resilience.breaker("payments");
//! payments.protect(charge()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! - A breaker that opens by its own counts refuses calls here **at once**. The others follow when a
//!   [quorum](Sharing::with_quorum) of instances says the same within a [window](Sharing::with_window).
//! - A shared opening has **one probe** over all instances: whoever has the lease may probe, and a lease ends by itself. An
//!   instance asks for it when the open time is over and a call was refused there since the breaker opened.
//! - A probe that succeeds closes for all; one that fails keeps it open for all.
//! - An **operator's order** ([`SharedBreakers`]) comes before all of that.
//! - A call never waits for the store, and no lock is held while it runs. A task in the background speaks with the store:
//!   when something happens, when the store pushes a change, and once a second.
//!
//! # While the store is down, slow or wrong
//!
//! | case | answer |
//! |---|---|
//! | it cannot be reached at the start | a warning; breakers begin closed, and it is tried again |
//! | it cannot be reached in [`protect`](SharedBreaker::protect) | what is known last decides; with nothing known the breaker is closed |
//! | … in [`is_open`](SharedBreaker::is_open), [`is_closed`](SharedBreaker::is_closed) | what is known last; `false`, `true` with nothing known |
//! | … in [`status`](SharedBreaker::status) | what is known last; `None` with nothing known |
//! | three failures in a row | it is not asked for 30 s, and each instance's own breaker decides alone, until it pushes something or the time is over |
//! | the credentials are refused | an error in the log, once; they are tried once a minute |
//! | nothing known yet in a state check | waits for 500 ms; the look-up goes on |
//!
//! # Whose breakers are not shared
//!
//! Those in front of the store itself ([`Resilience::breakers`](crate::Resilience::breakers)): whether *this* process reaches
//! the store is nothing that others could tell it, least of all through that store.

pub mod admin;

mod breaker;
mod config;
mod contact;
mod core;
mod driver;
mod event;
#[cfg(test)]
mod model;
mod operator;
mod replica;
mod status;
#[cfg(test)]
mod tests;

pub use self::{
    breaker::SharedBreaker,
    config::Sharing,
    event::{Events, SharedEvent},
    operator::{Order, OrderError, SharedBreakers},
    status::Status,
};
pub(crate) use self::{core::Core, driver::Driver};
pub use crate::store::board::{Hold, HoldState};
