//! A real `redis-server` in the hands of a test.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use redis::{Client, Value};
use tempfile::TempDir;

use crate::{PATIENCE, free_port};

/// A `redis-server` on a free loopback port, empty and without persistence. It ends with this value, also when the test
/// panics.
///
/// All methods block until what they do is done.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    arguments: Vec<String>,
    directory: TempDir,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments, such as `["--requirepass", "secret"]`.
    ///
    /// # Panics
    ///
    /// When `redis-server` is not installed, or does not come up.
    #[must_use]
    pub fn start_with(arguments: &[&str]) -> Self {
        let mut server = Self::prepare(arguments);
        // Somebody else may take the port between our look and the server's.
        for _ in 0..10 {
            if server.launch() {
                return server;
            }
            server.port = free_port();
        }
        panic!("redis-server does not come up with {arguments:?}");
    }

    /// Starts a server on this port, which another of these has left.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    #[must_use]
    pub fn start_at(port: u16) -> Self {
        let mut server = Self::prepare(&[]);
        server.port = port;
        server.restart();
        server
    }

    /// Starts a server in cluster mode, a cluster of one that serves all slots.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    #[must_use]
    pub fn start_cluster() -> Self {
        let server = Self::start_with(&["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
        server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        // A new primary waits two seconds before it serves.
        let begun = Instant::now();
        while !server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
            assert!(begun.elapsed() < PATIENCE, "the cluster does not serve");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Has a port, but runs no server on it until [`restart`](Self::restart).
    #[must_use]
    pub fn prepare(arguments: &[&str]) -> Self {
        Self {
            port: free_port(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: tempfile::tempdir().expect("a temporary directory can be made"),
            process: None,
        }
    }

    /// The port it listens on, the same for its whole life.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its working directory, for sockets and the like.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends it the orderly way (SIGTERM).
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal(&process, Signal::SIGTERM);
            process.wait().expect("our own child can be waited for");
        }
    }

    /// Ends it at once (SIGKILL), frozen or not.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("our own child can be killed");
            process.wait().expect("our own child can be waited for");
        }
    }

    /// Starts it again on the same port, empty, after it was stopped or killed.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.stop();
        assert!(
            self.launch(),
            "redis-server does not come up again on port {}",
            self.port
        );
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open, new ones are accepted by the kernel, nothing is answered.
    pub fn freeze(&self) {
        let process = self.running();
        signal(process, Signal::SIGSTOP);
        // The signal is delivered when it has stopped, not when it was sent.
        waitpid(pid(process), Some(WaitPidFlag::WUNTRACED)).expect("our own child can be waited for");
    }

    /// Lets it go on (SIGCONT) with all that has queued up meanwhile.
    pub fn thaw(&self) {
        signal(self.running(), Signal::SIGCONT);
    }

    /// What the server answers to a command, in `redis-cli`'s manner: one line per element.
    ///
    /// # Panics
    ///
    /// When the server cannot be asked, or answers with an error.
    pub fn cli(&self, command: &[&str]) -> String {
        self.cli_at(&self.url(), command)
    }

    /// [`cli`](Self::cli) at another URL of this server, such as one with a password.
    ///
    /// # Panics
    ///
    /// When the server cannot be asked, or answers with an error.
    pub fn cli_at(&self, url: &str, command: &[&str]) -> String {
        let client = Client::open(url).expect("our own URL is well formed");
        let mut connection = client.get_connection_with_timeout(PATIENCE).expect("the server is up");
        let reply: Value = redis::cmd(command[0])
            .arg(&command[1..])
            .query(&mut connection)
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut lines = Vec::new();
        write_lines(&reply, &mut lines);
        lines.join("\n")
    }

    fn launch(&mut self) -> bool {
        let mut process = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
            ])
            .args(["--port", &self.port.to_string()])
            .args(&self.arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let begun = Instant::now();
        let up = loop {
            if process.try_wait().expect("our own child can be waited for").is_some() {
                return false;
            }
            if self.answers() {
                break true;
            }
            if begun.elapsed() > PATIENCE {
                break false;
            }
            thread::sleep(Duration::from_millis(2));
        };
        self.process = Some(process);
        up
    }

    /// Whether the server answers a `PING` with anything but that it is loading; `NOAUTH` will do.
    fn answers(&self) -> bool {
        let ping = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut reply = [0; 8];
            stream.read_exact(&mut reply[..7])?;
            io::Result::Ok(reply)
        };
        ping().is_ok_and(|reply| reply.starts_with(b"+PONG") || reply.starts_with(b"-NOAUTH"))
    }

    fn running(&self) -> &Child {
        self.process.as_ref().expect("the server runs")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // No panic in a drop: it may be the test's own that brought us here.
            _ = process.kill();
            _ = process.wait();
        }
    }
}

fn signal(process: &Child, signal: Signal) {
    kill(pid(process), signal).expect("our own child can be signalled");
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).expect("process ids are small"))
}

fn write_lines(reply: &Value, lines: &mut Vec<String>) {
    match reply {
        Value::Nil => lines.push("(nil)".to_owned()),
        Value::Int(number) => lines.push(number.to_string()),
        Value::Okay => lines.push("OK".to_owned()),
        Value::SimpleString(text) => lines.push(text.clone()),
        Value::BulkString(bytes) => lines.push(String::from_utf8_lossy(bytes).into_owned()),
        Value::Array(values) => values.iter().for_each(|value| write_lines(value, lines)),
        other => lines.push(format!("{other:?}")),
    }
}
