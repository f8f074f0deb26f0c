//! The log on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::Settings;
use crate::exit::{Failure, Result};

/// What is logged when nobody says.
const DEFAULT: &str = "warn";

/// Starts logging as `log` of `settings` says.
pub(crate) fn start(settings: &Settings) -> Result<()> {
    start_at(settings, DEFAULT)
}

/// The same for a command that says what matters itself: `default` is what is logged when nobody
/// says.
pub(crate) fn start_at(settings: &Settings, default: &str) -> Result<()> {
    let (text, place) = match settings.get("log") {
        Some(entry) => (entry.text.as_str(), entry.place.to_string()),
        None => (default, String::new()),
    };
    let filter = EnvFilter::try_new(text).map_err(|error| {
        Failure::usage(format!("{place}: log: {text:?} is no log filter: {error}"))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    subscriber
        .try_init()
        .map_err(|error| Failure::other(format!("the log cannot be started: {error}")))
}
