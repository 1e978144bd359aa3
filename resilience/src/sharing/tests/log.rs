//! What the log says, for the tests of one thread each.

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
    sync::Once,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

thread_local! {
    /// What this thread's test has logged; `None` while it does not look.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Keeps this test's warnings and errors about shared breakers, a line each.
///
/// One subscriber for all threads: whether a line is on is remembered for all of them.
pub(super) struct Log;

impl Log {
    pub(super) fn start() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            tracing::subscriber::set_global_default(Self).expect("no test installs another");
        });
        LINES.set(Some(Vec::new()));
        Self
    }

    /// How many lines of this level there are that say this.
    pub(super) fn count(&self, level: Level, words: &str) -> usize {
        let is_one = |line: &&String| line.starts_with(level.as_str()) && line.contains(words);
        LINES.with_borrow(|lines| lines.iter().flatten().filter(is_one).count())
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("resilience::sharing")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.push(line.0);
            }
        });
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
