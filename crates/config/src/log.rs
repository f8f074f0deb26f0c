//! The log on stderr, as the settings `log` and `log_format` say.

mod book;
mod filter;

use std::io::IsTerminal;
use std::str::FromStr;

use emmer_runtime::admin::show_log;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Identity, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use self::book::{Book, Change};
use self::filter::{filter, none, without_spans};
use super::{ConfigError, Result, Settings};

/// The level that is logged by default.
const DEFAULT: &str = "warn";

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is not a form of the log: expected text or json")),
        }
    }
}

impl Settings {
    /// Starts the log on stderr, as `log` and `log_format` say. A program that has installed a
    /// subscriber of `tracing` before keeps that one.
    ///
    /// # Errors
    /// `log` is no filter, or `log_format` no form.
    pub fn start_log(&self) -> Result<()> {
        self.start_log_with(DEFAULT, None::<Identity>)
    }

    /// As [`start_log`](Self::start_log), for a program that knows what matters, or that records
    /// spans: `default` is the filter when none is set.
    ///
    /// # Errors
    /// As [`start_log`](Self::start_log).
    pub fn start_log_with(
        &self,
        default: &str,
        spans: Option<impl Layer<Registry> + Send + Sync>,
    ) -> Result<()> {
        let filter = match self.get("log") {
            Some(entry) => filter(&entry.text).map_err(|why| {
                entry.wrong("log", format!("{:?} is not a log filter: {why}", entry.text))
            })?,
            None => filter(default).map_err(|why| ConfigError::new(format!("log: {why}")))?,
        };
        let format = self.parsed("log_format")?.unwrap_or_default();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        let (written, write) = reload::Layer::new(without_spans(filter.clone()));
        let (kept, keep) = reload::Layer::new(none());
        let book = Book::new(filter, written_by(write), written_by(keep));
        let tap = book.tap().with_filter(kept);
        let registry = tracing_subscriber::registry().with(spans).with(tap);
        let started = match format {
            LogFormat::Text => registry.with(lines.with_filter(written)).try_init(),
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                registry.with(lines.with_filter(written)).try_init()
            }
        };
        // It fails only if the program has a subscriber already.
        if started.is_ok() {
            show_log(book);
        }
        Ok(())
    }
}

/// Changes a filter that is in use.
fn written_by<S: 'static>(handle: reload::Handle<Targets, S>) -> Change {
    Box::new(move |filter| {
        // It fails only if the subscriber is gone.
        let _ = handle.reload(filter);
    })
}
