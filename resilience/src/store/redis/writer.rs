//! What one connection sends and receives: commands that wait go out together, and each has its own deadline.
//!
//! A deadline counts from sending to reply, by the clock of the thread that does both. Time that a command or its reply
//! spends elsewhere in the process is not the server's.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until},
};

use super::{connection::Health, dispatch::Place};

/// Commands that are written together at most. Their replies are handed out together too, so more would add to the wait
/// of the first.
const TOGETHER: usize = 32;

/// A connection on which nothing has arrived for so long, though an answer is due, leads nowhere: the server hangs, or the
/// way to it is cut without a word. A reply that is merely late does not end a connection.
const SILENCE: Duration = Duration::from_secs(1);

/// A timer may fire before the socket is read, when both are due after a pause of the whole process. So the socket is read
/// once more before an answer counts as missing.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// One command on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Cmd,
    /// How long the server has.
    pub(super) within: Duration,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its place among those on their way, given back when its reply is there; `None` for one that needs none.
    pub(super) place: Option<Place>,
}

/// What came of a command. A sender that is dropped says that its connection has ended.
#[derive(Debug)]
pub(super) enum Answer {
    /// The reply, and how long the server took.
    Reply(RedisResult<Value>, Duration),
    /// There was none in time.
    TimedOut,
    /// It was not sent: too many others were before it in the line.
    Shed,
}

/// Serves one connection until it dies, or until nothing more can be sent on it. Open commands end with it.
pub(super) async fn serve(redis: MultiplexedConnection, mut jobs: mpsc::UnboundedReceiver<Job>, health: Arc<Health>) {
    let mut batches = FuturesUnordered::new();
    let mut next = Vec::with_capacity(TOGETHER);
    let mut is_open = true;
    while is_open || !batches.is_empty() {
        tokio::select! {
            biased;
            // First, so that replies and errors which are there are handed out.
            Some(()) = batches.next() => {}
            () = health.death() => return,
            received = jobs.recv_many(&mut next, TOGETHER), if is_open => {
                is_open = received > 0;
                // A caller that has gone meanwhile needs no answer, and an operation that was not sent has no effect.
                next.retain(|job: &Job| !job.answer.is_closed());
                if !next.is_empty() {
                    batches.push(exchange(redis.clone(), std::mem::take(&mut next), &health));
                }
            }
        }
    }
}

/// Sends commands in one write and hands out their replies.
async fn exchange(mut redis: MultiplexedConnection, jobs: Vec<Job>, health: &Health) {
    let mut pipeline = Pipeline::with_capacity(jobs.len());
    let mut waiting = Vec::with_capacity(jobs.len());
    // Held until the replies are there, also for callers that have gone: their commands are on their way all the same.
    let mut places = Vec::with_capacity(jobs.len());
    let sent = Instant::now();
    for Job {
        command,
        within,
        answer,
        place,
    } in jobs
    {
        pipeline.add_command(command);
        places.extend(place);
        waiting.push(Some((within, answer)));
    }
    let mut replies = pin!(redis.send_packed_commands(&pipeline, 0, waiting.len()));
    let silence = sent + SILENCE;
    let replies = loop {
        let dues = waiting.iter().flatten().map(|(within, _)| sent + *within);
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
        for slot in &mut waiting {
            if let Some((_, answer)) = slot.take_if(|(within, _)| sent + *within <= due) {
                // An error: the caller has gone.
                _ = answer.send(Answer::TimedOut);
            }
        }
        if due == silence {
            health.dies();
            return;
        }
    };
    let took = sent.elapsed();
    drop(places);
    match replies {
        Ok(values) if values.len() == waiting.len() => {
            for (slot, value) in waiting.into_iter().zip(values) {
                // Errors of the server come as values.
                let reply = value.extract_error();
                health.answers(reply.as_ref().err());
                hand_out(slot, reply, took);
            }
        }
        replies => {
            let odd = || RedisError::from((ErrorKind::Parse, "Redis did not answer each command"));
            let error = replies.err().unwrap_or_else(odd);
            health.answers(Some(&error));
            for slot in waiting {
                hand_out(slot, Err(error.clone()), took);
            }
        }
    }
}

fn hand_out(slot: Option<(Duration, oneshot::Sender<Answer>)>, reply: RedisResult<Value>, took: Duration) {
    if let Some((_, answer)) = slot {
        _ = answer.send(Answer::Reply(reply, took));
    }
}
