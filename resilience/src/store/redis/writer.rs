//! What one connection sends and receives: commands that wait go out together, and each has its own deadline.
//!
//! A deadline counts from sending to reply, by the clock of the thread that does both. Time that a command or its reply
//! spends elsewhere in the process is not the server's.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep, sleep_until},
};

use super::{
    connection::Health,
    dispatch::Place,
    reads::{Group, Mismatch},
};

/// Commands that are written together at most. Their replies are handed out together too, so more would add to the wait
/// of the first.
const TOGETHER: usize = 128;

/// Writes that may be without a reply at once. Under load, commands gather meanwhile and go out in larger groups, which cost
/// less each; without load, none waits.
const OUTSTANDING: usize = 2;

/// A connection on which nothing has arrived for so long, though an answer is due, leads nowhere: the server hangs, or the
/// way to it is cut without a word. A reply that is merely late does not end a connection.
const SILENCE: Duration = Duration::from_secs(1);

/// A timer may fire before the socket is read, when both are due after a pause of the whole process. So the socket is read
/// once more before an answer counts as missing.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// A timer that fires later than this after its time shows that this process, or the whole machine, has been kept from
/// running. The server is given that time in addition, up to a second for one write.
const STALL: Duration = Duration::from_millis(5);

/// One command on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ask: Ask,
    /// How long the server has.
    pub(super) within: Duration,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its place among those on their way, given back when its reply is there; `None` for one that needs none.
    pub(super) place: Option<Place>,
}

/// What the server is asked.
#[derive(Debug)]
pub(super) enum Ask {
    Command(Cmd),
    /// The text under a key. Reads that go out together are one command.
    Read(String),
}

/// What came of a command. A sender that is dropped says that its connection has ended.
#[derive(Debug)]
pub(super) enum Answer {
    /// The reply, and how long the server took.
    Reply(RedisResult<Value>, Duration),
    /// There was none in time. Commands that went out together miss one deadline together: only the first of them is a
    /// failure of the server.
    TimedOut { is_first: bool },
    /// It was not sent: too many others were before it in the line.
    Shed,
    /// There was a reply, but to another question: no reply on this connection can be trusted.
    Mismatch,
}

/// Serves one connection until it dies, or until nothing more can be sent on it. Open commands end with it.
pub(super) async fn serve(redis: MultiplexedConnection, mut jobs: mpsc::UnboundedReceiver<Job>, health: Arc<Health>) {
    let turns = Turns::default();
    let mut batches = FuturesUnordered::new();
    let mut next = Vec::with_capacity(TOGETHER);
    let mut is_open = true;
    while is_open || !batches.is_empty() {
        tokio::select! {
            biased;
            // First, so that replies and errors which are there are handed out.
            Some(()) = batches.next() => {}
            () = health.death() => return,
            () = turns.given_back.notified(), if !turns.are_left() => {}
            received = jobs.recv_many(&mut next, TOGETHER), if is_open && turns.are_left() => {
                is_open = received > 0;
                // A caller that has gone meanwhile needs no answer, and an operation that was not sent has no effect.
                next.retain(|job: &Job| !job.answer.is_closed());
                if !next.is_empty() {
                    batches.push(exchange(redis.clone(), std::mem::take(&mut next), turns.take(), &health));
                }
            }
        }
    }
}

/// Writes that may be without a reply. One whose commands have all timed out counts no more: others must not wait for a
/// server that does not answer.
#[derive(Debug, Default)]
struct Turns {
    taken: AtomicUsize,
    given_back: Notify,
}

struct Turn<'a>(&'a Turns);

impl Turns {
    fn are_left(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < OUTSTANDING
    }

    fn take(&self) -> Turn<'_> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.given_back.notify_one();
    }
}

/// A command that waits for its reply: how long, and where the reply goes. `None` once it has timed out.
type Slot = Option<(Duration, oneshot::Sender<Answer>)>;

/// Sends commands in one write and hands out their replies.
async fn exchange(mut redis: MultiplexedConnection, jobs: Vec<Job>, turn: Turn<'_>, health: &Health) {
    let mut turn = Some(turn);
    let mut pipeline = Pipeline::with_capacity(jobs.len());
    let (mut slots, mut readers, mut keys) = (Vec::with_capacity(jobs.len()), Vec::new(), Vec::new());
    // Held until the replies are there, also for callers that have gone: their commands are on their way all the same.
    let mut places = Vec::with_capacity(jobs.len());
    let sent = Instant::now();
    for Job {
        ask,
        within,
        answer,
        place,
    } in jobs
    {
        places.extend(place);
        match ask {
            Ask::Command(command) => {
                pipeline.add_command(command);
                slots.push(Some((within, answer)));
            }
            Ask::Read(key) => {
                keys.push(key);
                readers.push(Some((within, answer)));
            }
        }
    }
    let commands = slots.len();
    let reads = Group::of(&keys);
    if !keys.is_empty() {
        pipeline.add_command(reads.command(true));
        slots.append(&mut readers);
    }
    let Some(replies) = replies(&mut redis, &pipeline, &mut slots, &mut turn, sent, health).await else {
        return;
    };
    let mut readers = slots.split_off(commands);
    let read = match replies {
        Ok(mut replies) => {
            let read = replies.split_off(commands);
            for (slot, reply) in slots.into_iter().zip(replies) {
                // Errors of the server come as values.
                hand_out(slot, reply.extract_error(), sent, health);
            }
            match read.into_iter().next() {
                None => return,
                Some(reply) => reply.extract_error(),
            }
        }
        Err(error) => {
            hand_out_all(slots, &error, sent, health);
            Err(error)
        }
    };
    // The one error after which nothing has happened.
    let is_unknown = |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
    let read = match read {
        Err(error) if is_unknown(&error) => {
            let mut again = Pipeline::with_capacity(1);
            again.add_command(reads.command(false));
            let Some(replies) = self::replies(&mut redis, &again, &mut readers, &mut turn, sent, health).await else {
                return;
            };
            let first = replies.map(|replies| replies.into_iter().next().unwrap_or(Value::Nil));
            first.and_then(Value::extract_error)
        }
        read => read,
    };
    drop(places);
    match read.map(|reply| reads.values(reply)) {
        Ok(Ok(values)) => {
            for (slot, value) in readers.into_iter().zip(values) {
                hand_out(slot, value, sent, health);
            }
        }
        Ok(Err(Mismatch)) => {
            for (_, answer) in readers.into_iter().flatten() {
                _ = answer.send(Answer::Mismatch);
            }
        }
        Err(error) => hand_out_all(readers, &error, sent, health),
    }
}

/// The replies to all commands, while those that take too long are told so. `None` if the connection ends in silence.
async fn replies(
    redis: &mut MultiplexedConnection,
    pipeline: &Pipeline,
    slots: &mut [Slot],
    turn: &mut Option<Turn<'_>>,
    mut sent: Instant,
    health: &Health,
) -> Option<RedisResult<Vec<Value>>> {
    let commands = pipeline.len();
    let mut replies = pin!(redis.send_packed_commands(pipeline, 0, commands));
    let mut silence = Instant::now() + SILENCE;
    let mut stalled = Duration::ZERO;
    let mut is_first = true;
    let replies = loop {
        let dues = slots.iter().flatten().map(|(within, _)| sent + *within);
        let due = dues.min().unwrap_or(silence).min(silence);
        tokio::select! {
            biased;
            replies = &mut replies => break replies,
            () = sleep_until(due) => {}
        }
        tokio::select! {
            biased;
            replies = &mut replies => break replies,
            () = sleep(SECOND_LOOK) => {}
        }
        let late = due.elapsed().saturating_sub(SECOND_LOOK);
        if late > STALL && stalled < SILENCE {
            stalled += late;
            sent += late;
            silence += late;
            continue;
        }
        for slot in &mut *slots {
            if let Some((_, answer)) = slot.take_if(|(within, _)| sent + *within <= due) {
                // An error: the caller has gone.
                let told = answer.send(Answer::TimedOut { is_first }).is_ok();
                is_first &= !told;
            }
        }
        if slots.iter().all(Option::is_none) {
            drop(turn.take());
        }
        if due == silence {
            health.dies();
            return None;
        }
    };
    Some(match replies {
        Ok(replies) if replies.len() != commands => Err(RedisError::from((
            ErrorKind::Parse,
            "Redis did not answer each command",
        ))),
        replies => replies,
    })
}

fn hand_out(slot: Slot, reply: RedisResult<Value>, sent: Instant, health: &Health) {
    health.answers(reply.as_ref().err());
    if let Some((_, answer)) = slot {
        _ = answer.send(Answer::Reply(reply, sent.elapsed()));
    }
}

fn hand_out_all(slots: Vec<Slot>, error: &RedisError, sent: Instant, health: &Health) {
    for slot in slots {
        hand_out(slot, Err(error.clone()), sent, health);
    }
}
