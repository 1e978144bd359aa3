//! Reads of single keys, asked for in groups: one script call for all that wait together.

use std::sync::LazyLock;

use redis::{Cmd, RedisResult, Value, cmd};

const CODE: &str = include_str!("scripts/read.lua");

static HASH: LazyLock<String> = LazyLock::new(|| redis::Script::new(CODE).get_hash().to_owned());

/// A group of reads, and the token that its reply has to name.
pub(super) struct Group<'a> {
    keys: &'a [String],
    token: [u8; 8],
}

/// The reply to a group belongs to another question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

impl<'a> Group<'a> {
    pub(super) fn of(keys: &'a [String]) -> Self {
        Self {
            keys,
            // Random, so that no two commands on one connection share one.
            token: fastrand::u64(..).to_be_bytes(),
        }
    }

    /// By the script's hash, or with its text for a server that does not know it yet.
    pub(super) fn command(&self, is_known: bool) -> Cmd {
        let mut command = match is_known {
            true => cmd("EVALSHA"),
            false => cmd("EVAL"),
        };
        command
            .arg(if is_known { HASH.as_str() } else { CODE })
            .arg(self.keys.len())
            .arg(self.keys)
            .arg(&self.token);
        command
    }

    /// Each key's value, or its error.
    pub(super) fn values(&self, reply: Value) -> Result<impl Iterator<Item = RedisResult<Value>>, Mismatch> {
        let Value::Array(parts) = reply else {
            return Err(Mismatch);
        };
        let is_ours = matches!(parts.first(), Some(Value::BulkString(token)) if *token == self.token);
        if !is_ours || parts.len() != 1 + self.keys.len() {
            return Err(Mismatch);
        }
        Ok(parts.into_iter().skip(1).map(Value::extract_error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_belong_to_the_group_that_their_reply_names() {
        let keys = ["a".to_owned(), "b".to_owned()];
        let (ours, other) = (Group::of(&keys), Group::of(&keys));
        let reply = |group: &Group<'_>, values: &[Value]| {
            let token = Value::BulkString(group.token.to_vec());
            Value::Array([&[token], values].concat())
        };
        let values = [Value::Nil, Value::BulkString(b"x".to_vec())];
        let read: RedisResult<Vec<_>> = ours.values(reply(&ours, &values)).unwrap().collect();
        assert_eq!(read.unwrap(), values);
        for odd in [
            reply(&other, &values),
            reply(&ours, &values[..1]),
            Value::Array(values.to_vec()),
            Value::Array(Vec::new()),
            Value::Okay,
        ] {
            assert!(ours.values(odd.clone()).is_err(), "{odd:?}");
        }
    }
}
