//! The log on stderr.

use emmer::config::Settings;
use tracing_subscriber::{Layer, Registry};

use crate::exit::Result;

/// Starts logging as `log` of `settings` says.
///
/// # Errors
/// It says what cannot be.
pub fn start(settings: &Settings) -> Result<()> {
    Ok(settings.start_log()?)
}

/// Starts the log with another filter where none is set.
pub(crate) fn start_at(settings: &Settings, default: &str) -> Result<()> {
    Ok(settings.start_log_with(default, None::<tracing_subscriber::layer::Identity>)?)
}

/// Starts the log with a layer that records spans.
pub(crate) fn start_with(
    settings: &Settings,
    spans: Option<impl Layer<Registry> + Send + Sync>,
) -> Result<()> {
    Ok(settings.start_log_with("warn", spans)?)
}
