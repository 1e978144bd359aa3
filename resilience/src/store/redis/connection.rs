//! A connection that knows whether it lives.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use redis::{
    Cmd, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection,
    cmd,
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};

use crate::{
    asking,
    store::{StoreError, StoreErrorKind},
    store_breaker::Operation,
};

use super::{
    classify::{self, store_error},
    dispatch::Dispatch,
    link::Link,
    reads::{Group, Mismatch},
    writer::{self, Answer, Ask, Job},
};

/// A multiplexed connection. Clones share it: their commands go out back to back, without waiting for one another.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    way: Way,
    /// Where its commands take their places, and as which kind. `None` for commands that are few, and never wait.
    line: Option<(Arc<Dispatch>, Operation)>,
}

#[derive(Clone, Debug)]
enum Way {
    /// To the task that serves the connection.
    Own {
        jobs: mpsc::UnboundedSender<Job>,
        health: Arc<Health>,
    },
    /// A connection from a pool that is not ours.
    Lent(MultiplexedConnection),
}

/// Why a command has no reply of use.
#[derive(Debug)]
pub(super) enum NoReply {
    /// An error of the server, or of the connection.
    Redis(RedisError),
    /// Nothing came within this time. `is_first` of the commands that went out together.
    TimedOut { within: Duration, is_first: bool },
    /// The connection has ended, which another command on it has reported. One event is one failure of the server,
    /// however many commands were open.
    EndedWithOthers,
    /// The command was not sent: too many wait in this process.
    Shed,
    /// The reply belongs to another question.
    Mismatch,
}

impl NoReply {
    fn ended() -> Self {
        let message = "the connection ended before its answer came";
        Self::Redis(RedisError::from((ErrorKind::Io, message)))
    }
}

impl From<NoReply> for StoreError {
    fn from(no_reply: NoReply) -> Self {
        match no_reply {
            NoReply::Redis(error) => store_error(error),
            NoReply::TimedOut { within, is_first } => {
                let message = format!("Redis has not answered within {within:?}");
                let error = Self::new(StoreErrorKind::TimedOut, message);
                if is_first { error } else { error.reported() }
            }
            NoReply::EndedWithOthers => Self::new(
                StoreErrorKind::Unavailable,
                "the connection to Redis has ended, with other commands on it",
            )
            .reported(),
            NoReply::Mismatch => Self::new(
                StoreErrorKind::Unavailable,
                "a reply of Redis belongs to another question",
            ),
            NoReply::Shed => Self::new(
                StoreErrorKind::Saturated,
                "too many commands to Redis are waiting in this process",
            ),
        }
    }
}

impl Connection {
    /// One of our own, for whose health we answer. Needs the runtime on which its task is to run.
    pub(super) fn own(redis: MultiplexedConnection, health: Arc<Health>) -> Self {
        health.serves();
        let (sender, jobs) = mpsc::unbounded_channel();
        tokio::spawn(writer::serve(redis, jobs, Arc::clone(&health)));
        Self {
            way: Way::Own { jobs: sender, health },
            line: None,
        }
    }

    /// One from a pool that is not ours.
    pub(super) const fn lent(redis: MultiplexedConnection) -> Self {
        Self {
            way: Way::Lent(redis),
            line: None,
        }
    }

    /// The same connection, whose commands take their places as this kind of operation.
    pub(super) fn for_operation(mut self, dispatch: &Arc<Dispatch>, operation: Operation) -> Self {
        self.line = Some((Arc::clone(dispatch), operation));
        self
    }

    pub(super) fn is_dead(&self) -> bool {
        match &self.way {
            Way::Own { health, .. } => health.is_dead(),
            Way::Lent(_) => false,
        }
    }

    /// Gives the connection up: an answer shows that it leads to the wrong server.
    pub(super) fn abandon(&self) {
        match &self.way {
            Way::Own { health, .. } => health.dies(),
            Way::Lent(redis) => quit(redis.clone()),
        }
    }

    /// Gives the connection up, since a reply on it did not match its command: no other reply on it can be trusted.
    pub(super) fn distrust(&self, sign: &str) -> StoreError {
        self.abandon();
        if let Way::Own { health, .. } = &self.way
            && !health.takes_blame()
        {
            return NoReply::EndedWithOthers.into();
        }
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!("a reply of Redis did not match its command ({sign}): the connection was given up"),
        )
    }

    /// Sends one command and waits for its reply. The server has until `deadline`, counted from when the command is
    /// sent.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time: a command that was not sent is forgotten, and the reply to one that was is discarded.
    pub(super) async fn send(&mut self, command: Cmd, deadline: Instant) -> Result<Value, NoReply> {
        self.ask(Ask::Command(command), deadline).await
    }

    /// Reads one key, together with others that are read at the same time.
    ///
    /// # Cancel safety
    ///
    /// As for [`send`](Self::send).
    pub(super) async fn read(&mut self, key: String, deadline: Instant) -> Result<Value, StoreError> {
        match self.ask(Ask::Read(key), deadline).await {
            Err(NoReply::Mismatch) => Err(self.distrust("it names another question")),
            reply => Ok(reply?),
        }
    }

    async fn ask(&mut self, ask: Ask, deadline: Instant) -> Result<Value, NoReply> {
        let within = deadline.saturating_duration_since(Instant::now());
        match &mut self.way {
            Way::Lent(redis) => {
                redis.set_response_timeout(within);
                match ask {
                    Ask::Command(command) => lent(redis, &command).await,
                    Ask::Read(key) => lent_read(redis, key).await,
                }
            }
            Way::Own { jobs, health } => {
                let (answer, answered) = oneshot::channel();
                let job = Job {
                    ask,
                    within,
                    answer,
                    place: None,
                };
                match &self.line {
                    Some((dispatch, operation)) => dispatch.send(*operation, asking::standing(), job, jobs),
                    // An error says that the task has ended with its connection: the sender is dropped then too.
                    None => _ = jobs.send(job),
                }
                match answered.await {
                    Ok(Answer::Reply(reply, took)) => {
                        asking::store_took(took);
                        reply.map_err(|error| match is_end(&error) && !health.takes_blame() {
                            true => NoReply::EndedWithOthers,
                            false => NoReply::Redis(error),
                        })
                    }
                    Ok(Answer::TimedOut { is_first }) => Err(NoReply::TimedOut { within, is_first }),
                    Ok(Answer::Shed) => Err(NoReply::Shed),
                    Ok(Answer::Mismatch) => Err(NoReply::Mismatch),
                    Err(_dropped) if health.takes_blame() => Err(NoReply::ended()),
                    Err(_dropped) => Err(NoReply::EndedWithOthers),
                }
            }
        }
    }
}

async fn lent(redis: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, NoReply> {
    let reply: RedisResult<Value> = redis.send_packed_command(command).await;
    reply.and_then(Value::extract_error).map_err(NoReply::Redis)
}

async fn lent_read(redis: &mut MultiplexedConnection, key: String) -> Result<Value, NoReply> {
    let keys = [key];
    let group = Group::of(&keys);
    let reply = match lent(redis, &group.command(true)).await {
        Err(NoReply::Redis(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            lent(redis, &group.command(false)).await
        }
        reply => reply,
    };
    let mut values = group.values(reply?).map_err(|Mismatch| NoReply::Mismatch)?;
    let value = values.next().unwrap_or(Ok(Value::Nil));
    value.map_err(NoReply::Redis)
}

/// Whether the error is the end of its connection, and no answer of the server.
fn is_end(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) && classify::ends_connection(error)
}

/// Has the server close a connection that is not ours to drop: its pool then finds it broken.
fn quit(mut redis: MultiplexedConnection) {
    if let Ok(tokio) = tokio::runtime::Handle::try_current() {
        tokio.spawn(async move {
            // Whatever comes of it: the connection is of no use.
            _ = redis.send_packed_command(&cmd("QUIT")).await;
        });
    }
}

/// The life of one connection: it is new until the handshake is over, then it serves, then it is dead.
#[derive(Debug)]
pub(super) struct Health {
    state: AtomicU8,
    /// Whether a command has reported the end.
    blamed: AtomicBool,
    died: Notify,
    link: Arc<Link>,
}

const NEW: u8 = 0;
const SERVES: u8 = 1;
const DEAD: u8 = 2;

impl Health {
    pub(super) fn new(link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(NEW),
            blamed: AtomicBool::new(false),
            died: Notify::new(),
            link,
        })
    }

    /// What the connection's own task reports.
    pub(super) fn observe(&self, push: &PushInfo) {
        if push.kind == PushKind::Disconnection {
            self.dies();
        }
    }

    /// Completes when the connection is dead.
    pub(super) async fn death(&self) {
        loop {
            let mut died = std::pin::pin!(self.died.notified());
            // Before the look, so that a death in between is not missed.
            died.as_mut().enable();
            if self.is_dead() {
                return;
            }
            died.await;
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state.load(Ordering::Acquire) == DEAD
    }

    fn serves(&self) {
        // It may have died since the handshake.
        let served = self
            .state
            .compare_exchange(NEW, SERVES, Ordering::AcqRel, Ordering::Acquire);
        if served.is_ok() {
            self.link.connection_serves();
        }
    }

    pub(super) fn dies(&self) {
        if self.state.swap(DEAD, Ordering::AcqRel) == SERVES {
            self.link.connection_died();
        }
        self.died.notify_waiters();
    }

    /// Whether the connection's end is still to be reported: true once.
    fn takes_blame(&self) -> bool {
        !self.blamed.swap(true, Ordering::Relaxed)
    }

    /// An answer has come, perhaps an error.
    pub(super) fn answers(&self, error: Option<&RedisError>) {
        if error.is_some_and(classify::ends_connection) {
            self.dies();
        }
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.dies();
    }
}
