//! Refuses a Redis in cluster mode when a connection is opened.

use std::{collections::HashMap, io};

use redis::{Cmd, ErrorKind, ProtocolVersion, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd};
use tokio::time::{Instant, timeout_at};

/// Why a cluster cannot serve.
pub(super) const CLUSTER: &str = "this Redis runs in cluster mode, which is not supported yet, because the keys of one \
                                  decision lie in different slots: use a Redis with `cluster-enabled no`, with replicas \
                                  if it must be available";

/// Whether the server runs in cluster mode: one round trip, or two if it refuses the first question. A user who may ask
/// neither is answered with no.
///
/// # Errors
///
/// When the connection ends, or the answer has not come by `deadline`.
pub(super) async fn is_cluster(
    connection: &mut MultiplexedConnection,
    protocol: ProtocolVersion,
    deadline: Instant,
) -> RedisResult<bool> {
    let answer = timeout_at(deadline, async {
        if protocol == ProtocolVersion::RESP3
            && let Some(hello) = ask(connection, &cmd("HELLO")).await?
            && let Some(mode) = mode(hello)
        {
            return Ok(mode == "cluster");
        }
        let info = ask(connection, cmd("INFO").arg("cluster")).await?;
        Ok(info.is_some_and(has_cluster_enabled))
    });
    answer.await.unwrap_or_else(|_| {
        let message = "Redis has not told its mode within the connect timeout";
        Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
    })
}

/// The error of an attempt to connect to a cluster.
pub(super) fn refusal() -> RedisError {
    io::Error::new(io::ErrorKind::Unsupported, CLUSTER).into()
}

/// The server's answer; `None` if that is an error.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Option<Value>> {
    let reply = connection.send_packed_command(command).await;
    match reply.and_then(Value::extract_error) {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => Ok(None),
        Err(error) => Err(error),
    }
}

fn mode(hello: Value) -> Option<String> {
    let mut fields = redis::from_redis_value::<HashMap<String, Value>>(hello).ok()?;
    redis::from_redis_value(fields.remove("mode")?).ok()
}

fn has_cluster_enabled(info: Value) -> bool {
    let info = redis::from_redis_value::<String>(info).unwrap_or_default();
    info.lines().any(|line| line.trim_end() == "cluster_enabled:1")
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn reply(text: &str) -> Value {
        parse_redis_value(text.as_bytes()).expect("a reply")
    }

    #[test]
    fn the_mode_is_read_from_a_map_and_from_an_array() {
        let fields = "$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nmode\r\n$7\r\ncluster\r\n$7\r\nmodules\r\n*0\r\n";
        for header in ["%3", "*6"] {
            assert_eq!(
                mode(reply(&format!("{header}\r\n{fields}"))).as_deref(),
                Some("cluster")
            );
        }
        for odd in ["%0\r\n", "+OK\r\n", "_\r\n", "%1\r\n+mode\r\n*0\r\n"] {
            assert_eq!(mode(reply(odd)), None, "{odd}");
        }
    }

    #[test]
    fn info_tells_a_cluster_by_one_line() {
        let text = |text: &str| reply(&format!("${}\r\n{text}\r\n", text.len()));
        assert!(has_cluster_enabled(text("# Cluster\r\ncluster_enabled:1\r\n")));
        assert!(!has_cluster_enabled(text("# Cluster\r\ncluster_enabled:0\r\n")));
        assert!(!has_cluster_enabled(text("")));
        assert!(!has_cluster_enabled(Value::Nil));
    }
}
