//! What the log says while guards fall back.

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
    sync::{Mutex, Once, PoisonError},
};

use poem::{EndpointExt, handler};
use resilience::{
    Identity, resilient,
    store::StoreErrorKind,
    testing::{Answer, ScriptedStore},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::{ask, ms, over, request};

#[resilient(flag("outage-log", default = false))]
#[handler]
async fn flagged() {}

#[resilient(flag("outage-log-lonely", default = false))]
#[handler]
async fn not_installed() {}

#[handler]
async fn greeting(user: Option<Identity>) -> String {
    user.map_or_else(|| "stranger".into(), |Identity(user)| user)
}

#[handler]
async fn unverified(_user: Identity) {}

thread_local! {
    /// What this thread's test has logged; `None` while it does not look.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// What threads that serve no test have logged: those of stores, which connect there.
static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps this test's warnings and errors of this crate, a line each.
///
/// One subscriber serves all threads. With one of its own for each test, a line that another thread comes to first would be
/// off for everybody: whether it is on is remembered, and that thread has nobody to ask.
pub(crate) struct Log;

impl Log {
    pub(crate) fn start() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            tracing::subscriber::set_global_default(Self).expect("no test installs another");
        });
        LINES.set(Some(Vec::new()));
        Self
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        LINES.with_borrow(Clone::clone).unwrap_or_default()
    }

    /// Those of the threads of all stores too, whichever test they belong to.
    pub(crate) fn lines_of_stores(&self) -> Vec<String> {
        ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("resilience")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        if std::thread::current().name() == Some("resilience-redis") {
            ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
        } else {
            LINES.with_borrow_mut(|lines| lines.as_mut().map(|lines| lines.push(line.0)));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a String takes all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_falls_back_warns_at_most_once_a_second() {
    let log = Log::start();
    let store = ScriptedStore::new().on_flag(Answer::error(StoreErrorKind::Answered));
    let app = flagged.with(over(&store).build().expect("valid settings"));
    for _ in 0..10 {
        ask(&app, request(&[])).await;
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN") && lines[0].contains("outage-log"),
        "{lines:?}"
    );

    tokio::time::advance(ms(1_000)).await;
    ask(&app, request(&[])).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("unsaid=9"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_runtime_is_an_error_with_the_line_that_mends_it() {
    let log = Log::start();
    ask(&not_installed, request(&[])).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("ERROR") && lines[0].contains(".with(resilience)"),
        "{lines:?}"
    );
    assert!(lines[0].contains("not_installed"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_identity_is_an_error_unless_the_handler_serves_strangers() {
    let log = Log::start();
    assert_eq!(ask(&greeting, request(&[])).await.summary(), (200, "stranger".into()));
    assert_eq!(log.lines(), [""; 0]);

    assert_eq!(
        ask(&unverified, request(&[])).await.summary(),
        (500, "identity_missing".into())
    );
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("auth = \"fail_closed\""), "{lines:?}");
}
