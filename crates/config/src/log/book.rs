//! The log as operators see it: its last lines, and a filter for a time.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use emmer_runtime::admin::{LogBook, LogLine, LogPage};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;

use super::filter::{filter, none, without_spans};

/// Number of lines that are kept while operators look.
const LINES_MAX: usize = 1_000;

/// Characters of a line.
const CHARS_MAX: usize = 2_000;

/// Time after the last look at which lines are no longer kept.
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// Changes a filter that is in use.
pub(super) type Change = Box<dyn Fn(Targets) + Send + Sync>;

/// Lines of the log, and its filters.
pub(super) struct Book {
    /// The filter of the start.
    first: Targets,
    write: Change,
    keep: Change,
    filters: Mutex<Filters>,
    lines: Arc<Mutex<Lines>>,
}

struct Filters {
    /// The filter by which the log is written, and the time until which it is another one than at
    /// the start.
    written: Targets,
    until: Option<Instant>,
    /// Lines of this level and above are kept until then.
    kept: Option<(LevelFilter, Instant)>,
}

#[derive(Default)]
struct Lines {
    last: u64,
    kept: VecDeque<(Level, LogLine)>,
}

impl Book {
    /// `write` changes the filter of the log, `keep` that of the lines for operators.
    pub(super) fn new(first: Targets, write: Change, keep: Change) -> Self {
        let filters = Filters { written: first.clone(), until: None, kept: None };
        let (filters, lines) = (Mutex::new(filters), Arc::default());
        Self { first, write, keep, filters, lines }
    }

    /// The layer that keeps lines.
    pub(super) fn tap(&self) -> Tap {
        Tap(self.lines.clone())
    }
}

impl LogBook for Book {
    fn lines(&self, level: &str, after: u64, max: usize) -> Result<LogPage, String> {
        let wanted: Level = level.parse().map_err(|_| {
            format!("{level:?} is not a level: expected error, warn, info, debug or trace")
        })?;
        let wanted = LevelFilter::from_level(wanted);
        let text = {
            let mut filters = self.filters.lock();
            let widest = filters.kept.map_or(wanted, |(kept, _)| kept.max(wanted));
            if filters.kept.is_none_or(|(kept, _)| kept < wanted) {
                (self.keep)(without_spans(Targets::new().with_default(widest)));
            }
            filters.kept = Some((widest, Instant::now() + WATCHED_FOR));
            filters.written.to_string()
        };
        let lines = self.lines.lock();
        let oldest = lines.kept.front().map_or(lines.last + 1, |(_, line)| line.number);
        let of_level = |(level, line): &&(Level, LogLine)| line.number > after && *level <= wanted;
        let mut page = LogPage::default();
        // The latest where there are more than fit.
        page.lines =
            lines.kept.iter().rev().filter(of_level).take(max).map(|l| l.1.clone()).collect();
        page.lines.reverse();
        page.last = lines.last;
        // A page from the start wants what there is.
        page.lost = if after == 0 { 0 } else { oldest.saturating_sub(after + 1) };
        page.filter = text;
        Ok(page)
    }

    fn set_filter(&self, wanted: Option<&str>, within: Duration) -> Result<String, String> {
        let wanted = wanted.map(filter).transpose()?;
        let mut filters = self.filters.lock();
        filters.until = wanted.as_ref().map(|_| Instant::now() + within);
        let wanted = wanted.unwrap_or_else(|| self.first.clone());
        (self.write)(without_spans(wanted.clone()));
        Ok(std::mem::replace(&mut filters.written, wanted).to_string())
    }

    fn rest(&self) {
        self.rest_at(Instant::now());
    }
}

impl Book {
    fn rest_at(&self, now: Instant) {
        let mut filters = self.filters.lock();
        if filters.until.is_some_and(|until| until <= now) {
            filters.until = None;
            filters.written = self.first.clone();
            (self.write)(without_spans(self.first.clone()));
        }
        if filters.kept.is_some_and(|(_, until)| until <= now) {
            filters.kept = None;
            (self.keep)(none());
            self.lines.lock().kept.clear();
        }
    }
}

/// The layer that keeps lines.
pub(super) struct Tap(Arc<Mutex<Lines>>);

impl<S: Subscriber> Layer<S> for Tap {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let meta = event.metadata();
        let mut line = LogLine::default();
        line.at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        line.level = meta.level().as_str().to_lowercase();
        line.target = meta.target().to_owned();
        line.words = words.joined();
        let mut lines = self.0.lock();
        lines.last += 1;
        line.number = lines.last;
        if lines.kept.len() >= LINES_MAX {
            lines.kept.pop_front();
        }
        lines.kept.push_back((*meta.level(), line));
    }
}

/// The message of an event, and its fields.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Words {
    fn joined(self) -> String {
        let gap = if self.message.is_empty() || self.fields.is_empty() { "" } else { " " };
        format!("{}{gap}{}", self.message, self.fields)
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing stops with an error once there is no room.
        let _ = if field.name() == "message" {
            write!(Short(&mut self.message), "{value:?}")
        } else {
            let gap = if self.fields.is_empty() { "" } else { " " };
            write!(Short(&mut self.fields), "{gap}{}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// A text of at most [`CHARS_MAX`] bytes: what is longer is cut.
struct Short<'a>(&'a mut String);

impl Write for Short<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = CHARS_MAX.saturating_sub(self.0.len());
        let cut = text.floor_char_boundary(room);
        self.0.push_str(&text[..cut]);
        if cut < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::reload;

    use super::*;

    #[test]
    fn lines_are_kept_from_the_first_look_on_and_filters_change_for_a_time() {
        let (kept, keep) = reload::Layer::new(none());
        let written = Arc::new(AtomicUsize::new(0));
        let writes = written.clone();
        let write: Change = Box::new(move |_| {
            writes.fetch_add(1, Ordering::Relaxed);
        });
        let book = Book::new(
            filter("warn").unwrap(),
            write,
            Box::new(move |filter| _ = keep.reload(filter)),
        );
        let log = tracing_subscriber::registry().with(book.tap().with_filter(kept));
        tracing::subscriber::with_default(log, || {
            tracing::error!("nobody looks");
            assert!(book.lines("shout", 0, 10).unwrap_err().contains("expected error"));
            let page = book.lines("info", 0, 10).unwrap();
            assert_eq!((page.lines.len(), page.last, page.filter.as_str()), (0, 0, "warn"));
            tracing::info!(silo = "a\n<b>", n = 7, "hello");
            tracing::debug!("too low");
            tracing::error!(target: "x", long = "\u{f6}".repeat(9_000));
            let page = book.lines("info", 0, 10).unwrap();
            let lines: Vec<_> = page
                .lines
                .iter()
                .map(|l| (l.number, l.level.as_str(), l.target.as_str()))
                .collect();
            assert_eq!(lines, [(1, "info", module_path!()), (2, "error", "x")]);
            assert_eq!(page.lines[0].words, "hello silo=a\n<b> n=7");
            assert!(page.lines[1].words.len() <= CHARS_MAX);
            assert_eq!(book.lines("error", 1, 10).unwrap().lines.len(), 1);
            for n in 0..LINES_MAX {
                tracing::info!(n);
            }
            let page = book.lines("info", 1, 3).unwrap();
            assert_eq!((page.lost, page.lines.len(), page.last), (1, 3, 1_002));
            // Lines are kept for a minute after the last look.
            let last = Instant::now();
            book.rest_at(last + WATCHED_FOR - Duration::from_secs(1));
            tracing::error!("seen");
            assert_eq!(book.lines.lock().last, 1_003);
            book.rest_at(last + WATCHED_FOR);
            tracing::error!("unseen");
            assert!(book.lines.lock().kept.is_empty());
        });
        assert!(book.set_filter(Some("loud"), Duration::ZERO).is_err());
        assert_eq!(book.set_filter(Some("info"), Duration::ZERO).unwrap(), "warn");
        assert_eq!(book.lines("info", 0, 0).unwrap().filter, "info");
        book.rest();
        assert_eq!(book.lines("info", 0, 0).unwrap().filter, "warn");
        assert_eq!(written.load(Ordering::Relaxed), 2);
    }
}
