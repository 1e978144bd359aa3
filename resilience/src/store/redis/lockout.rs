//! The lockout's scripts and their replies.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::store::{
    Attempt, Begun, KeyLayout, Lockout, LockoutStatus, Refused, Settle, Settlement, StoreError, StoreErrorKind,
    lockout::tally::Rule,
};

use super::{
    connection::Connection,
    script::{Script, numbers, script},
};

static BEGIN: Script = script!("scripts/tally.lua", "scripts/begin.lua");
static SETTLE: Script = script!("scripts/tally.lua", "scripts/settle.lua");
static STATUS: Script = script!("scripts/tally.lua", "scripts/status.lua");

/// Begins an attempt against each tally, or against none, in one round trip.
pub(super) async fn begin(
    connection: &mut Connection,
    layout: &KeyLayout,
    attempts: &[Attempt<'_>],
    deadline: Instant,
) -> Result<Vec<Begun>, StoreError> {
    let reply = BEGIN.run(connection, deadline, |command| {
        command.arg(attempts.len());
        for attempt in attempts {
            command.arg(layout.tally(attempt.subject, &attempt.lockout.id));
        }
        for attempt in attempts {
            push_rule(command, attempt.lockout);
            push_identity(command, attempt);
        }
    });
    // The token fits and the shape does not: no reply on this connection can be trusted.
    decode(reply.await?, attempts.len()).inspect_err(|_| connection.abandon())
}

/// Settles attempts.
pub(super) async fn settle(
    connection: &mut Connection,
    layout: &KeyLayout,
    settled: &[Settlement<'_>],
    deadline: Instant,
) -> Result<(), StoreError> {
    let reply = SETTLE.run(connection, deadline, |command| {
        command.arg(settled.len());
        for Settlement { attempt, .. } in settled {
            command.arg(layout.tally(attempt.subject, &attempt.lockout.id));
        }
        for Settlement { attempt, settle } in settled {
            push_rule(command, attempt.lockout);
            command.arg(match settle {
                Settle::Clear => "clear",
                Settle::GiveBack => "back",
                Settle::Fail => "fail",
            });
            push_identity(command, attempt);
        }
    });
    match reply.await? {
        Value::Int(_) => Ok(()),
        _ => {
            connection.abandon();
            Err(odd())
        }
    }
}

/// The state of a tally.
pub(super) async fn status(
    connection: &mut Connection,
    layout: &KeyLayout,
    lockout: &Lockout,
    subject: &str,
    deadline: Instant,
) -> Result<LockoutStatus, StoreError> {
    let reply = STATUS.run(connection, deadline, |command| {
        command.arg(1).arg(layout.tally(subject, &lockout.id));
        push_rule(command, lockout);
    });
    match numbers(reply.await?).as_deref() {
        Some(&[attempts, pending, locked_for, locks]) => Ok(LockoutStatus {
            attempts: saturating(attempts),
            pending: saturating(pending),
            locked_for: (locked_for > 0).then(|| Duration::from_millis(locked_for)),
            locks: saturating(locks),
        }),
        _ => {
            connection.abandon();
            Err(odd())
        }
    }
}

fn push_rule(command: &mut Cmd, lockout: &Lockout) {
    let rule = Rule::of(lockout);
    command.arg(rule.attempts).arg(rule.durations.len());
    for duration in &rule.durations {
        command.arg(duration);
    }
}

/// In all bits: the script compares texts.
fn push_identity(command: &mut Cmd, attempt: &Attempt<'_>) {
    command
        .arg(&attempt.id.to_be_bytes())
        .arg(&attempt.origin.to_be_bytes());
}

fn decode(reply: Value, attempts: usize) -> Result<Vec<Begun>, StoreError> {
    let numbers = numbers(reply)
        .filter(|numbers| numbers.len() == 3 * attempts)
        .ok_or_else(odd)?;
    let (tallies, _) = numbers.as_chunks::<3>();
    let begun = tallies.iter().map(|&[verdict, remaining, wait]| {
        let retry_after = Duration::from_millis(wait);
        Ok(Begun {
            remaining: saturating(remaining),
            refused: match verdict {
                0 => None,
                1 => Some(Refused::Locked { retry_after }),
                2 => Some(Refused::UnderWay { retry_after }),
                _ => return Err(odd()),
            },
        })
    });
    begun.collect()
}

fn saturating(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn odd() -> StoreError {
    StoreError::new(
        StoreErrorKind::Answered,
        "Redis answered a lockout's script with something else",
    )
}
