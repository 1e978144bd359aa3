//! A script that Redis runs by its hash, and learns when it does not know it.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use super::{classify::store_error, connection::Connection};
use crate::store::StoreError;

/// A script's text, and its hash once that was needed.
pub(super) struct Script {
    code: &'static str,
    hash: LazyLock<String, fn() -> String>,
}

/// Declares a script of one or more pieces of Lua.
macro_rules! script {
    ($($file:literal),+) => {
        $crate::store::redis::script::Script::new(
            concat!($(include_str!($file)),+),
            || redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned(),
        )
    };
}

pub(super) use script;

impl Script {
    pub(super) const fn new(code: &'static str, hash: fn() -> String) -> Self {
        Self {
            code,
            hash: LazyLock::new(hash),
        }
    }

    /// Runs it once, in one round trip if Redis knows it. `arguments` adds the number of keys, the keys and the rest.
    pub(super) async fn run(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let command = |how: &str, script: &str| {
            let mut command = cmd(how);
            command.arg(script);
            arguments(&mut command);
            command
        };
        let reply = match connection.send(&command("EVALSHA", &self.hash), deadline).await {
            // The one error after which nothing has happened for certain. Sent with its text, the script runs and stays
            // known, and nobody's SCRIPT FLUSH can come in between.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                connection.send(&command("EVAL", self.code), deadline).await
            }
            reply => reply,
        };
        reply.map_err(store_error)
    }
}

/// The numbers of a reply; `None` if it is anything else.
pub(super) fn numbers(reply: Value) -> Option<Vec<u64>> {
    let Value::Array(values) = reply else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    values.iter().map(number).collect()
}
