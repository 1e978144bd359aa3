//! What an error of Redis says about its health.
//!
//! redis-rs tells errors apart by what a client may retry, which is another question: a `READONLY` from a demoted primary
//! counts as recoverable there, and a response of an odd type as a broken connection.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::mode::CLUSTER;
use crate::store::{StoreError, StoreErrorKind};

/// Codes of a server that cannot serve now, or not us.
const UNAVAILABLE: [&str; 12] = [
    "BUSY",
    "CLUSTERDOWN",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// Codes of a server in cluster mode, whose other answers cannot be trusted to hold a limit.
const CLUSTER_ONLY: [&str; 3] = ["ASK", "CROSSSLOT", "MOVED"];

/// Codes of a server that does not want us, or not this of us.
const DENIED: [&str; 3] = ["NOAUTH", "NOPERM", "WRONGPASS"];

/// The error as the guards see it.
pub(super) fn store_error(error: RedisError) -> StoreError {
    let (kind, message) = match classify(&error) {
        StoreErrorKind::Unavailable => (StoreErrorKind::Unavailable, "Redis cannot serve"),
        kind => (kind, "Redis answered with an error"),
    };
    let mut message = format!("{message}: {error}");
    if is_of_cluster(&error) {
        message = format!("{message} ({CLUSTER})");
    }
    caused_by(StoreError::new(kind, message), error)
}

/// Adds the cause, and that it is a refusal if it is.
pub(super) fn caused_by(error: StoreError, cause: RedisError) -> StoreError {
    let error = if is_denied(&cause) { error.denied() } else { error };
    error.with_source(cause)
}

pub(super) fn classify(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension if is_unavailable(error) => StoreErrorKind::Unavailable,
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::UnexpectedReturnType => StoreErrorKind::Answered,
        // The connection: IO of all kinds, name resolution, TLS, a reply that is not Redis's protocol, credentials.
        _ => StoreErrorKind::Unavailable,
    }
}

/// Whether the connection that gave this error must not be used again.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    match error.kind() {
        // A demoted or orphaned replica keeps its connections open: the way back to the primary is a new one.
        ErrorKind::Server(_) | ErrorKind::Extension => matches!(code(error), Some("READONLY" | "MASTERDOWN")),
        // The client's own clock is off, so that a time-out here is the kernel's.
        ErrorKind::Io => true,
        _ => error.is_unrecoverable_error(),
    }
}

/// Whether the key holds another type than the command reads.
pub(super) fn is_wrong_type(error: &StoreError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.and_then(code) == Some("WRONGTYPE")
}

fn is_unavailable(error: &RedisError) -> bool {
    let refused = || {
        error
            .detail()
            .is_some_and(|detail| detail.starts_with("max number of clients reached"))
    };
    code(error).is_some_and(|code| UNAVAILABLE.contains(&code)) || is_of_cluster(error) || refused()
}

fn is_of_cluster(error: &RedisError) -> bool {
    code(error).is_some_and(|code| CLUSTER_ONLY.contains(&code))
}

fn is_denied(error: &RedisError) -> bool {
    // What a script may not do comes without the code, and since Redis 7.2 in other words.
    let in_script = || {
        error.detail().is_some_and(|detail| {
            detail.starts_with("The user executing the script can't") || detail.starts_with("ACL failure in script")
        })
    };
    error.kind() == ErrorKind::AuthenticationFailed
        || code(error).is_some_and(|code| DENIED.contains(&code))
        || in_script()
}

/// The error's code: its own, or that of the command which failed inside a script. Before Redis 7 the latter stood in the
/// text only ("ERR Error running script …: @user_script: 12: -READONLY You can't write against a read only replica").
fn code(error: &RedisError) -> Option<&str> {
    if error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && let Some((_, inner)) = error.detail()?.split_once(": -")
    {
        return inner.split(' ').next();
    }
    error.code()
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::{Value, parse_redis_value};

    use super::*;

    fn server_error(line: &str) -> RedisError {
        parse_redis_value(format!("-{line}\r\n").as_bytes())
            .and_then(Value::extract_error)
            .unwrap_err()
    }

    #[test]
    fn a_server_that_cannot_serve_is_unavailable() {
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "OOM command not allowed when used memory > 'maxmemory'. script: 5ca1ab1e, on @user_script:7.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "DENIED Redis is running in protected mode",
            "ERR max number of clients reached",
            "ERR Error running script (call to f_5ca1ab1e): @user_script:12: @user_script: 12: -READONLY You can't write \
             against a read only replica.",
            "ERR Error running script (call to f_5ca1ab1e): @user_script:12: @user_script: 12: -OOM command not allowed",
        ] {
            assert_eq!(classify(&server_error(line)), StoreErrorKind::Unavailable, "{line}");
        }
    }

    #[test]
    fn a_server_that_answers_is_well() {
        for line in [
            "NOSCRIPT No matching script. Please use EVAL.",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOPERM this user has no permissions to run the 'get' command",
            "EXECABORT Transaction discarded because of previous errors.",
            "ERR unknown command 'ROLE'",
            "ERR user_script:3: attempt to index a nil value script: 5ca1ab1e, on @user_script:3.",
            "SOMETHING of the future",
        ] {
            assert_eq!(classify(&server_error(line)), StoreErrorKind::Answered, "{line}");
        }
        let odd = RedisError::from((ErrorKind::UnexpectedReturnType, "a map"));
        assert_eq!(classify(&odd), StoreErrorKind::Answered);
    }

    #[test]
    fn a_cluster_is_unavailable_and_the_error_says_what_to_use() {
        for line in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "ERR Error running script: @user_script: 1: -MOVED 3999 127.0.0.1:6381",
        ] {
            let error = store_error(server_error(line));
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{line}");
            assert!(error.to_string().contains(CLUSTER), "{error}");
        }
        assert!(!store_error(server_error("OOM …")).to_string().contains(CLUSTER));
    }

    #[test]
    fn a_refusal_is_told_from_other_errors() {
        for (line, kind) in [
            ("NOAUTH Authentication required.", StoreErrorKind::Unavailable),
            (
                "NOAUTH HELLO must be called with the client already authenticated",
                StoreErrorKind::Unavailable,
            ),
            ("WRONGPASS invalid username-password pair", StoreErrorKind::Unavailable),
            (
                "NOPERM this user has no permissions to run the 'get' command",
                StoreErrorKind::Answered,
            ),
            (
                "ERR Error running script: @user_script: 1: -NOPERM this user has no permissions",
                StoreErrorKind::Answered,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 5ca1ab1e, on @user_script:7.",
                StoreErrorKind::Answered,
            ),
            (
                "ERR ACL failure in script: User blind has no permissions to run the 'hmget' command",
                StoreErrorKind::Answered,
            ),
        ] {
            let error = store_error(server_error(line));
            assert_eq!((error.is_denied(), error.kind()), (true, kind), "{line}");
        }
        assert!(store_error(RedisError::from((ErrorKind::AuthenticationFailed, "…"))).is_denied());
        for line in ["DENIED Redis is running in protected mode", "READONLY …", "ERR NOAUTH"] {
            assert!(!store_error(server_error(line)).is_denied(), "{line}");
        }
        assert!(!store_error(RedisError::from(io::Error::from(io::ErrorKind::PermissionDenied))).is_denied());
    }

    #[test]
    fn whatever_ails_the_connection_is_unavailable_and_ends_it() {
        for kind in [
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::TimedOut,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::Other,
        ] {
            let error = RedisError::from(io::Error::from(kind));
            assert_eq!(classify(&error), StoreErrorKind::Unavailable, "{kind}");
            assert!(ends_connection(&error), "{kind}");
        }
        for kind in [ErrorKind::Parse, ErrorKind::AuthenticationFailed] {
            let error = RedisError::from((kind, "…"));
            assert_eq!(classify(&error), StoreErrorKind::Unavailable);
            assert!(ends_connection(&error));
        }
        let unresolved = RedisError::from((ErrorKind::InvalidClientConfig, "No address found for host"));
        assert_eq!(classify(&unresolved), StoreErrorKind::Unavailable);
    }

    #[test]
    fn a_demoted_primary_ends_its_connections_and_a_busy_one_does_not() {
        assert!(ends_connection(&server_error("READONLY You can't write")));
        assert!(ends_connection(&server_error(
            "ERR Error running script: @user_script: 1: -READONLY You can't"
        )));
        assert!(ends_connection(&server_error("MASTERDOWN Link with MASTER is down")));
        for line in ["LOADING …", "OOM …", "BUSY …", "WRONGTYPE …", "NOPERM …"] {
            assert!(!ends_connection(&server_error(line)), "{line}");
        }
    }
}
