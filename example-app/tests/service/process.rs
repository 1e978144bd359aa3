//! The service as a process of its own, and how tests talk to it.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use resilience_tests::PATIENCE;
use serde_json::{Value, json};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Response},
};

/// The key of `user-42`, in the embedded store and in those that tests fill.
pub(crate) const KEY: &str = "letmein";

/// A running service. It ends with this value, also when the test panics.
pub(crate) struct Service {
    process: Process,
    address: String,
    log: Arc<Mutex<String>>,
    agent: Agent,
}

impl Service {
    /// Starts a service with these settings and no others on a free port, and waits until it listens.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let mut process = Process::start(&[], &[&[("PORT", "0")], settings].concat());
        let log = Arc::default();
        collect(process.0.stderr.take().expect("it is piped"), Arc::clone(&log));
        let (first_line, printed) = channel();
        drain(process.0.stdout.take().expect("it is piped"), first_line);
        let line = printed.recv_timeout(PATIENCE).expect("it says where it listens");
        let address = line
            .strip_prefix("listening on http://")
            .expect("it says where it listens");
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        Self {
            process,
            address: address.trim_end().to_owned(),
            log,
            agent: agent.into(),
        }
    }

    /// `<host>:<port>`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(path, None)
    }

    /// `/api/checkout` with this API key.
    pub(crate) fn checkout(&self, key: &str) -> Answer {
        self.send("/api/checkout", Some(("x-api-key", key)))
    }

    /// `/api/catalog`, as if a proxy had written this `X-Forwarded-For`.
    pub(crate) fn catalog_for(&self, forwarded_for: &str) -> Answer {
        self.send("/api/catalog", Some(("x-forwarded-for", forwarded_for)))
    }

    /// `/login` with this name and this password.
    pub(crate) fn login(&self, username: &str, password: &str) -> Answer {
        self.post(
            "/login",
            &json!({ "username": username, "password": password }).to_string(),
        )
    }

    /// Posts this body as JSON.
    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        let request = self.agent.post(format!("http://{}{path}", self.address));
        Answer::of(request.content_type("application/json").send(body).expect("it answers"))
    }

    /// Asks as an operator would: with this `Authorization`, and an order if there is one to give.
    pub(crate) fn operate(&self, method: &str, path: &str, authorization: &str, order: Option<&str>) -> Answer {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", authorization);
        let answer = match order {
            Some(order) => {
                let request = request
                    .header("content-type", "application/json")
                    .body(order.to_owned());
                self.agent.run(request.expect("a request"))
            }
            None => self.agent.run(request.body(()).expect("a request")),
        };
        Answer::of(answer.expect("it answers"))
    }

    pub(crate) fn send(&self, path: &str, header: Option<(&str, &str)>) -> Answer {
        let mut request = self.agent.get(format!("http://{}{path}", self.address));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        Answer::of(request.call().expect("it answers"))
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.0.id()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("our own child can be signalled");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

/// What the service answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    fn of(mut response: Response<Body>) -> Self {
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.body_mut().read_to_string().expect("the answer is whole"),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("headers are text"))
    }

    /// A header that must be there and be a number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.header(name).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is no number: {self:?}"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The `error` code of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether a guard had to do without the store.
    pub(crate) fn fell_back(&self) -> bool {
        ["x-flag-fallback", "x-ratelimit-fallback", "x-lockout-fallback"]
            .iter()
            .any(|name| self.headers.contains_key(*name))
    }
}

/// Runs the binary with these arguments and settings, and no other settings, to its end.
pub(crate) fn run(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut process = Process::start(arguments, settings);
    let status = process.wait();
    // What such a command prints fits into the pipes.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let child = &mut process.0;
    child
        .stdout
        .take()
        .expect("it is piped")
        .read_to_end(&mut stdout)
        .expect("a pipe can be read");
    child
        .stderr
        .take()
        .expect("it is piped")
        .read_to_end(&mut stderr)
        .expect("a pipe can be read");
    Output { status, stdout, stderr }
}

/// Runs a command that must succeed, and returns what it printed.
pub(crate) fn succeed(arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let output = run(arguments, settings);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until `condition` holds, looking every few milliseconds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

struct Process(Child);

impl Process {
    fn start(arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_example-app"))
            .args(arguments)
            .env_clear()
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.expect("the binary is there"))
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.0.try_wait().expect("our own child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No panic in a drop: it may be the test's own that brought us here.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Hands the first line over and reads on, so that the process never waits for a reader.
fn drain(output: impl Read + Send + 'static, first_line: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            _ = first_line.send(line);
        }
    });
}

fn collect(output: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push_str(&line);
            log.push('\n');
        }
    });
}
