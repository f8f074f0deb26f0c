//! The log on stderr.

use std::io::IsTerminal;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Settings;
use crate::exit::{Failure, Result};

/// What is logged when nobody says.
const DEFAULT: &str = "warn";

/// Starts logging as `log` of `settings` says.
pub fn start(settings: &Settings) -> Result<()> {
    start_at(settings, DEFAULT)
}

/// The same for a command that says what matters itself: `default` is what is logged when nobody
/// says.
pub fn start_at(settings: &Settings, default: &str) -> Result<()> {
    let (text, place) = match settings.get("log") {
        Some(entry) => (entry.text.as_str(), entry.place.to_string()),
        None => (default, String::new()),
    };
    let filter: Targets = text.parse().map_err(|error| {
        Failure::usage(format!("{place}: log: {text:?} is no log filter: {error}"))
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .try_init()
        .map_err(|error| Failure::other(format!("the log cannot be started: {error}")))
}
