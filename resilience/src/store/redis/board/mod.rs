//! The boards of shared breakers: their scripts.

mod changes;
mod reply;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt, stream::BoxStream};
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::store::{
    BreakerBoard, KeyLayout, StoreError, StoreFuture,
    board::{At, Board, Entry, Leased, NewHold, Presence, Trip},
};

use super::{
    pool::Pool,
    script::{Script, script},
};

static LOOK: Script = script!("../scripts/board.lua", "../scripts/board_look.lua");
static TRIP: Script = script!("../scripts/board.lua", "../scripts/board_trip.lua");
static CLOSE: Script = script!("../scripts/board.lua", "../scripts/board_close.lua");
static REOPEN: Script = script!("../scripts/board.lua", "../scripts/board_reopen.lua");
static LEASE: Script = script!("../scripts/board.lua", "../scripts/board_lease.lua");
static YIELD: Script = script!("../scripts/board.lua", "../scripts/board_yield.lua");
static HOLD: Script = script!("../scripts/board.lua", "../scripts/board_hold.lua");

/// The boards of all systems.
#[derive(Clone)]
pub(super) struct Boards {
    pool: Arc<Pool>,
    layout: KeyLayout,
}

impl Boards {
    pub(super) fn new(pool: Arc<Pool>, layout: KeyLayout) -> Self {
        Self { pool, layout }
    }

    async fn run(
        &self,
        script: &Script,
        deadline: Instant,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, StoreError> {
        let mut connection = self.pool.checkout_by(deadline).await?;
        script.run(&mut connection, deadline, arguments).await
    }

    /// Runs a script on one breaker. `arguments` adds those after its name and its channel.
    async fn run_on(
        &self,
        script: &Script,
        (system, name): (&str, &str),
        deadline: Instant,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, StoreError> {
        let base = self.layout.breakers(system);
        self.run(script, deadline, |command| {
            command
                .arg(7)
                .arg(format!("{base}instances"))
                .arg(format!("{base}names"));
            for kind in ["circuit", "hold", "votes", "lease", "wanted"] {
                command.arg(format!("{base}{kind}:{name}"));
            }
            command.arg(name).arg(format!("{base}changes"));
            arguments(command);
        })
        .await
    }
}

impl BreakerBoard for Boards {
    fn look<'a>(
        &'a self,
        system: &'a str,
        presence: Option<Presence<'a>>,
        deadline: Instant,
    ) -> StoreFuture<'a, Board> {
        async move {
            let base = self.layout.breakers(system);
            let reply = self.run(&LOOK, deadline, |command| {
                command
                    .arg(2)
                    .arg(format!("{base}instances"))
                    .arg(format!("{base}names"));
                command.arg(&base);
                if let Some(presence) = presence {
                    command.arg(presence.instance).arg(presence.names);
                }
            });
            reply::board(reply.await?)
        }
        .boxed()
    }

    fn trip<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry> {
        async move {
            let reply = self.run_on(&TRIP, (at.system, at.name), deadline, |command| {
                opening(command.arg(at.instance), trip);
                command.arg(trip.quorum).arg(millis(trip.window)).arg(trip.fleet);
            });
            reply::entry(reply.await?)
        }
        .boxed()
    }

    fn close<'a>(
        &'a self,
        at: At<'a>,
        opening: Option<&'a str>,
        reason: &'a str,
        deadline: Instant,
    ) -> StoreFuture<'a, Entry> {
        async move {
            let reply = self.run_on(&CLOSE, (at.system, at.name), deadline, |command| {
                command.arg(at.instance).arg(reason).arg(opening);
            });
            reply::entry(reply.await?)
        }
        .boxed()
    }

    fn reopen<'a>(&'a self, at: At<'a>, trip: &'a Trip<'a>, deadline: Instant) -> StoreFuture<'a, Entry> {
        async move {
            let reply = self.run_on(&REOPEN, (at.system, at.name), deadline, |command| {
                opening(command.arg(at.instance), trip);
                command.arg(trip.round).arg(trip.since.map(unix_millis));
            });
            reply::entry(reply.await?)
        }
        .boxed()
    }

    fn lease<'a>(&'a self, at: At<'a>, opening: &'a str, ttl: Duration, deadline: Instant) -> StoreFuture<'a, Leased> {
        async move {
            let reply = self.run_on(&LEASE, (at.system, at.name), deadline, |command| {
                command.arg(at.instance).arg(opening).arg(millis(ttl));
            });
            reply::leased(reply.await?)
        }
        .boxed()
    }

    fn yield_lease<'a>(&'a self, at: At<'a>, deadline: Instant) -> StoreFuture<'a, bool> {
        async move {
            let reply = self.run_on(&YIELD, (at.system, at.name), deadline, |command| {
                command.arg(at.instance);
            });
            reply::truth(reply.await?)
        }
        .boxed()
    }

    fn hold<'a>(
        &'a self,
        system: &'a str,
        name: &'a str,
        hold: Option<&'a NewHold>,
        deadline: Instant,
    ) -> StoreFuture<'a, bool> {
        async move {
            let reply = self.run_on(&HOLD, (system, name), deadline, |command| {
                if let Some(hold) = hold {
                    command.arg(hold.state.as_str()).arg(&hold.reason).arg(&hold.author);
                    command.arg(hold.lasts.map(millis));
                }
            });
            reply::truth(reply.await?)
        }
        .boxed()
    }

    fn changes<'a>(&'a self, system: &'a str, deadline: Instant) -> StoreFuture<'a, BoxStream<'static, ()>> {
        async move {
            let channel = self.layout.breakers(system) + "changes";
            changes::listen(self.pool.listener(), &channel, deadline).await
        }
        .boxed()
    }
}

impl fmt::Debug for Boards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boards")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

fn opening(command: &mut Cmd, trip: &Trip<'_>) {
    command
        .arg(trip.opening)
        .arg(millis(trip.open_for))
        .arg(trip.failed_probes)
        .arg(trip.reason);
}

/// Longer than this is for ever: 3,000 years, after which sums are still exact in Lua.
const MOST: u64 = 100_000_000_000_000;

/// At least one: Redis takes no expiry of zero.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_or(MOST, |millis| millis.clamp(1, MOST))
}

fn unix_millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| {
        u64::try_from(since.as_millis()).map_or(MOST, |millis| millis.min(MOST))
    })
}
