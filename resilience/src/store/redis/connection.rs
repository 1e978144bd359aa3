//! A connection that knows whether it lives.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU32, Ordering},
};

use redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::time::Instant;

use super::{classify, link::Link};

/// Operations in a row that may go unanswered before a connection is given up: the server hangs, or the way to it is cut
/// without a word.
const UNANSWERED: u32 = 3;

/// A multiplexed connection. Clones share it: their commands go out back to back, without waiting for one another.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    redis: MultiplexedConnection,
    health: Option<Arc<Health>>,
}

impl Connection {
    /// One of our own, for whose health we answer.
    pub(super) fn own(redis: MultiplexedConnection, health: Arc<Health>) -> Self {
        health.serves();
        Self {
            redis,
            health: Some(health),
        }
    }

    /// One from a pool that is not ours. It is used until `deadline` at most, whatever its own limit is.
    pub(super) fn lent(mut redis: MultiplexedConnection, deadline: Instant) -> Self {
        redis.set_response_timeout(deadline.saturating_duration_since(Instant::now()));
        Self { redis, health: None }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_dead())
    }

    /// Gives the connection up: what it has answered shows that it leads nowhere.
    pub(super) fn abandon(&self) {
        if let Some(health) = &self.health {
            health.dies();
        }
    }

    /// Sends one command and waits for its reply.
    ///
    /// The caller's deadline has to end the wait. Not only does a server hang at times: a command that meets the very end
    /// of its connection may be lost in redis-rs's queue, whose receiver is gone and whose sender is this one, and then
    /// there is neither reply nor error.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time: the reply is discarded when it comes. Dropped at `deadline` or later it counts as
    /// unanswered; before, the caller has changed its mind, which says nothing about the server.
    pub(super) async fn send(&mut self, command: &Cmd, deadline: Instant) -> RedisResult<Value> {
        let question = Question {
            health: self.health.as_deref(),
            deadline,
        };
        let reply = self.redis.send_packed_command(command).await;
        // Errors of the server come as values.
        let reply = reply.and_then(Value::extract_error);
        question.answered(reply.as_ref().err());
        reply
    }
}

/// The life of one connection: it is new until the handshake is over, then it serves, then it is dead for good.
#[derive(Debug)]
pub(super) struct Health {
    state: AtomicU8,
    unanswered: AtomicU32,
    link: Arc<Link>,
}

const NEW: u8 = 0;
const SERVES: u8 = 1;
const DEAD: u8 = 2;

impl Health {
    pub(super) fn new(link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(NEW),
            unanswered: AtomicU32::new(0),
            link,
        })
    }

    /// What the connection's own task reports.
    pub(super) fn observe(&self, push: &PushInfo) {
        if push.kind == PushKind::Disconnection {
            self.dies();
        }
    }

    fn is_dead(&self) -> bool {
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

    fn dies(&self) {
        if self.state.swap(DEAD, Ordering::AcqRel) == SERVES {
            self.link.connection_died();
        }
    }

    fn answers(&self, error: Option<&RedisError>) {
        self.unanswered.store(0, Ordering::Relaxed);
        if error.is_some_and(classify::ends_connection) {
            self.dies();
        }
    }

    fn leaves_unanswered(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
            self.dies();
        }
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.dies();
    }
}

/// A command that was sent. Dropped without an answer, it looks at the clock to see whose fault that is.
struct Question<'a> {
    health: Option<&'a Health>,
    deadline: Instant,
}

impl Question<'_> {
    fn answered(mut self, error: Option<&RedisError>) {
        if let Some(health) = self.health.take() {
            health.answers(error);
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(health) = self.health
            && Instant::now() >= self.deadline
        {
            health.leaves_unanswered();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;

    fn serving() -> (Arc<Link>, Arc<Health>) {
        let link = Arc::new(Link::new("127.0.0.1:6379".to_owned(), Duration::from_secs(5)));
        let health = Health::new(Arc::clone(&link));
        health.serves();
        (link, health)
    }

    fn ask(health: &Health, deadline: Instant) -> Question<'_> {
        Question {
            health: Some(health),
            deadline,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn three_operations_in_a_row_without_an_answer_end_it() {
        let (link, health) = serving();
        let past = Instant::now();
        for _ in 0..10 {
            drop(ask(&health, past));
            drop(ask(&health, past));
            ask(&health, past).answered(None);
        }
        assert_eq!(link.live(), 1);
        for _ in 0..3 {
            drop(ask(&health, past));
        }
        assert!(health.is_dead());
        assert_eq!(link.live(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_give_up_early_do_not_count() {
        let (_, health) = serving();
        for _ in 0..10 {
            drop(ask(&health, Instant::now() + Duration::from_millis(1)));
        }
        assert!(!health.is_dead());
    }

    #[test]
    fn a_connection_dies_once_and_for_all() {
        let (link, health) = serving();
        let broken = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        ask(&health, Instant::now()).answered(Some(&broken));
        health.observe(&PushInfo {
            kind: PushKind::Disconnection,
            data: Vec::new(),
        });
        health.serves();
        drop(health);
        assert_eq!(link.live(), 0);
    }

    #[test]
    fn a_connection_that_dies_in_the_handshake_never_serves() {
        let link = Arc::new(Link::new(String::new(), Duration::from_secs(5)));
        let health = Health::new(Arc::clone(&link));
        health.dies();
        health.serves();
        assert_eq!(link.live(), 0);
    }

    #[test]
    fn a_connection_that_is_dropped_serves_no_more() {
        let (link, health) = serving();
        assert_eq!(link.live(), 1);
        drop(health);
        assert_eq!(link.live(), 0);
    }
}
