//! A script that Redis runs by its hash, and learns when it does not know it.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use super::connection::{Connection, NoReply};
use crate::store::StoreError;

/// A script's text, and its hash once that was needed.
///
/// Every script takes a token as its last argument and returns it before its answer, so that an answer proves which
/// question it belongs to. A reply that was lost, doubled or reordered on the way is noticed before it is used.
pub(super) struct Script {
    code: &'static str,
    hash: LazyLock<String, fn() -> String>,
    form: Form,
}

/// How a script returns its token and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In an array of the two. The macro adds this to scripts that know nothing of tokens.
    Pair,
    /// The token is the first element of the array that the script returns. Saves the server a fifth of a short call.
    Front,
}

/// Declares a script of one or more pieces of Lua. `front` before them: it returns its last argument in front itself.
macro_rules! script {
    (front $file:literal) => {{
        const CODE: &str = include_str!($file);
        $crate::store::redis::script::Script::new(
            CODE,
            || redis::Script::new(CODE).get_hash().to_owned(),
            $crate::store::redis::script::Form::Front,
        )
    }};
    ($($file:literal),+) => {{
        // On one line with the script's first, so that line numbers in errors are those of the file.
        const CODE: &str = concat!(
            "local token = table.remove(ARGV) local function answer() ",
            $(include_str!($file),)+
            "\nend\nreturn { token, answer() }"
        );
        $crate::store::redis::script::Script::new(
            CODE,
            || redis::Script::new(CODE).get_hash().to_owned(),
            $crate::store::redis::script::Form::Pair,
        )
    }};
}

pub(super) use script;

impl Script {
    pub(super) const fn new(code: &'static str, hash: fn() -> String, form: Form) -> Self {
        Self {
            code,
            hash: LazyLock::new(hash),
            form,
        }
    }

    /// Runs it once, in one round trip if Redis knows it. `arguments` adds the number of keys, the keys and the rest.
    pub(super) async fn run(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        // Random, so that two commands on one connection never share one.
        let token = fastrand::u64(..).to_be_bytes();
        let command = |how: &str, script: &str| {
            let mut command = cmd(how);
            command.arg(script);
            arguments(&mut command);
            command.arg(&token);
            command
        };
        let reply = match connection.send(command("EVALSHA", &self.hash), deadline).await {
            // The one error after which nothing has happened for certain. Sent with its text, the script runs and stays
            // known, and nobody's SCRIPT FLUSH can come in between.
            Err(NoReply::Redis(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                connection.send(command("EVAL", self.code), deadline).await
            }
            reply => reply,
        };
        answer_to(&token, reply?, self.form).ok_or_else(|| connection.distrust("it names another question"))
    }
}

/// The answer in a reply that names this token.
fn answer_to(token: &[u8], reply: Value, form: Form) -> Option<Value> {
    let Value::Array(mut parts) = reply else { return None };
    if !matches!(parts.first(), Some(Value::BulkString(named)) if named == token) {
        return None;
    }
    parts.remove(0);
    match form {
        Form::Front => Some(Value::Array(parts)),
        // Lua ends a table at a trailing `nil`.
        Form::Pair if parts.is_empty() => Some(Value::Nil),
        Form::Pair => parts.pop().filter(|_| parts.is_empty()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_question_that_it_names() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let reply = Value::Array(vec![bulk("token"), Value::Int(1)]);
        let answer = |token: &[u8], reply| answer_to(token, reply, Form::Pair);
        assert_eq!(answer(b"token", reply.clone()), Some(Value::Int(1)));
        assert_eq!(answer(b"taken", reply.clone()), None);
        assert_eq!(answer(b"token", Value::Array(vec![bulk("token")])), Some(Value::Nil));
        let front = answer_to(b"token", reply.clone(), Form::Front);
        assert_eq!(front, Some(Value::Array(vec![Value::Int(1)])));
        assert_eq!(answer_to(b"taken", reply, Form::Front), None);
        for odd in [
            Value::Nil,
            bulk("token"),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Int(1), bulk("token")]),
            Value::Array(vec![bulk("token"), Value::Int(1), Value::Int(2)]),
        ] {
            assert_eq!(answer(b"token", odd.clone()), None, "{odd:?}");
        }
    }
}
