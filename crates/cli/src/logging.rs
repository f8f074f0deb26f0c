//! The log on stderr.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Identity, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

use crate::exit::{Failure, Result};
use emmer::config::Settings;

/// What is logged when nobody says.
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
            _ => Err(format!("{text:?} is no form of a log: text or json")),
        }
    }
}

/// Starts logging as `log` of `settings` says.
pub fn start(settings: &Settings) -> Result<()> {
    start_at(settings, DEFAULT)
}

/// The same for a command that says what matters itself: `default` is what is logged when nobody
/// says.
pub fn start_at(settings: &Settings, default: &str) -> Result<()> {
    begin(settings, default, None::<Identity>)
}

/// The same with a layer that records spans.
pub fn start_with(
    settings: &Settings,
    spans: Option<impl Layer<Registry> + Send + Sync>,
) -> Result<()> {
    begin(settings, DEFAULT, spans)
}

fn begin(
    settings: &Settings,
    default: &str,
    spans: Option<impl Layer<Registry> + Send + Sync>,
) -> Result<()> {
    let (text, place) = match settings.get("log") {
        Some(entry) => (entry.text.as_str(), entry.place.to_string()),
        None => (default, String::new()),
    };
    let filter = filter(text)
        .map_err(|why| Failure::usage(format!("{place}: log: {text:?} is no log filter: {why}")))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Lines do not tell which traces they belong to: few of them belong to any.
    let filter = filter.with_target(emmer::trace::TARGET, LevelFilter::OFF);
    let registry = tracing_subscriber::registry().with(spans);
    let started = match settings.parsed("log_format")?.unwrap_or_default() {
        LogFormat::Text => registry.with(lines.with_filter(filter)).try_init(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            registry.with(lines.with_filter(filter)).try_init()
        }
    };
    started.map_err(|error| Failure::other(format!("the log cannot be started: {error}")))
}

/// The filter that a text stands for: levels, and targets with levels.
fn filter(text: &str) -> std::result::Result<Targets, String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // To the parser a word alone is a target of which everything is logged. Nearly always it is
        // a level that is written wrong.
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        if level.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{level:?} is no level: expected off, error, warn, info, debug or trace, or a \
                 list as in warn,emmer_runtime=debug"
            ));
        }
    }
    text.parse().map_err(|error: tracing_subscriber::filter::ParseError| error.to_string())
}
