//! What the scripts of boards reply.

use std::time::{Duration, SystemTime};

use redis::Value;

use crate::store::{
    StoreError, StoreErrorKind,
    board::{Board, Circuit, Closing, Entry, Hold, HoldState, Leased, Opening},
};

pub(super) fn board(reply: Value) -> Result<Board, StoreError> {
    read_board(reply).ok_or_else(odd)
}

pub(super) fn entry(reply: Value) -> Result<Entry, StoreError> {
    read_entry(reply).ok_or_else(odd)
}

pub(super) fn leased(reply: Value) -> Result<Leased, StoreError> {
    let read = || {
        let [granted, entry] = parts(reply)?;
        Some(Leased {
            granted: number(granted)? == 1,
            entry: read_entry(entry)?,
        })
    };
    read().ok_or_else(odd)
}

pub(super) fn truth(reply: Value) -> Result<bool, StoreError> {
    number(reply).map(|number| number == 1).ok_or_else(odd)
}

fn read_board(reply: Value) -> Option<Board> {
    let Value::Array(values) = reply else { return None };
    let mut values = values.into_iter();
    Some(Board {
        instances: saturating(number(values.next()?)?),
        entries: values.map(read_entry).collect::<Option<_>>()?,
    })
}

fn read_entry(reply: Value) -> Option<Entry> {
    let [name, circuit, hold, probing, wanted] = parts(reply)?;
    Some(Entry {
        name: text(name)?,
        circuit: read_circuit(circuit)?,
        hold: read_hold(hold)?,
        probing: number(probing)? == 1,
        wanted: number(wanted)? == 1,
    })
}

fn read_circuit(reply: Value) -> Option<Circuit> {
    let Value::Array(mut fields) = reply else { return None };
    if fields.is_empty() {
        return Some(Circuit::Unknown);
    }
    let state = text(fields.remove(0))?;
    match state.as_str() {
        "open" => {
            let [id, round, since, due_in, failed_probes, reason, by] = fields.try_into().ok()?;
            Some(Circuit::Open(Opening {
                id: text(id)?,
                round: number(round)?,
                since: time(since)?,
                due_in: Duration::from_millis(number(due_in)?),
                failed_probes: saturating(number(failed_probes)?),
                reason: text(reason)?,
                by: text(by)?,
            }))
        }
        "closed" => {
            let [id, since, reason, by] = fields.try_into().ok()?;
            Some(Circuit::Closed(Closing {
                id: text(id)?,
                since: time(since)?,
                reason: text(reason)?,
                by: text(by)?,
            }))
        }
        "unreadable" => Some(Circuit::Unreadable),
        _ => None,
    }
}

fn read_hold(reply: Value) -> Option<Option<Hold>> {
    let Value::Array(fields) = reply else { return None };
    if fields.is_empty() {
        return Some(None);
    }
    let [state, reason, author, since, ends_in] = fields.try_into().ok()?;
    Some(Some(Hold {
        state: match text(state)?.as_str() {
            "open" => HoldState::Open,
            "closed" => HoldState::Closed,
            _ => return None,
        },
        reason: text(reason)?,
        author: text(author)?,
        since: time(since)?,
        ends_in: match ends_in {
            Value::Int(-1) => None,
            ends_in => Some(Duration::from_millis(number(ends_in)?)),
        },
    }))
}

fn parts<const N: usize>(reply: Value) -> Option<[Value; N]> {
    let Value::Array(values) = reply else { return None };
    values.try_into().ok()
}

fn number(reply: Value) -> Option<u64> {
    match reply {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

/// For people, or to be compared with what was ours: whatever is no UTF-8 was not.
fn text(reply: Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn time(reply: Value) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(number(reply)?))
}

fn saturating(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn odd() -> StoreError {
    StoreError::new(
        StoreErrorKind::Answered,
        "Redis answered a breaker's script with something else",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Value> {
        words
            .iter()
            .map(|word| match word.parse() {
                Ok(number) => Value::Int(number),
                Err(_) => Value::BulkString(word.as_bytes().to_vec()),
            })
            .collect()
    }

    fn reply(name: &str, circuit: &[&str], hold: &[&str]) -> Value {
        Value::Array(vec![
            Value::BulkString(name.as_bytes().to_vec()),
            Value::Array(words(circuit)),
            Value::Array(words(hold)),
            Value::Int(1),
            Value::Int(0),
        ])
    }

    #[test]
    fn entries_are_read_whole() {
        let open = ["open", "o-1", "2", "1000", "50", "2", "timeouts", "pid-1"];
        let held = ["closed", "a false alarm", "ada", "2000", "-1"];
        let entry = entry(reply("payments", &open, &held)).unwrap();
        assert_eq!(entry.name, "payments");
        assert!(entry.probing && !entry.wanted);
        let Circuit::Open(opening) = entry.circuit else {
            panic!("{:?}", entry.circuit);
        };
        assert_eq!((opening.round, opening.failed_probes), (2, 2));
        assert_eq!(opening.due_in, Duration::from_millis(50));
        let hold = entry.hold.unwrap();
        assert_eq!((hold.state, hold.ends_in), (HoldState::Closed, None));
        assert_eq!(hold.since, SystemTime::UNIX_EPOCH + Duration::from_secs(2));
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        let entry = entry(reply("payments", &[], &[])).unwrap();
        assert_eq!((entry.circuit, entry.hold), (Circuit::Unknown, None));
    }

    #[test]
    fn odd_replies_are_no_outage() {
        let odd = [
            Value::Nil,
            Value::Int(1),
            Value::Array(Vec::new()),
            reply("payments", &["open", "o-1"], &[]),
            reply(
                "payments",
                &["open", "o-1", "2", "-5", "50", "2", "timeouts", "pid-1"],
                &[],
            ),
            reply("payments", &["ajar"], &[]),
            reply("payments", &[], &["open"]),
            reply("payments", &[], &["ajar", "", "", "1", "-1"]),
            reply("payments", &[], &["open", "", "", "1", "-2"]),
        ];
        for value in odd {
            assert_eq!(
                entry(value.clone()).unwrap_err().kind(),
                StoreErrorKind::Answered,
                "{value:?}"
            );
            let value = Value::Array(vec![Value::Int(1), value]);
            assert!(
                board(value.clone()).is_err() && leased(value.clone()).is_err(),
                "{value:?}"
            );
        }
        assert!(truth(Value::Okay).is_err());
    }
}
