//! Filters of the log.

use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

/// The filter without the spans of calls: few lines belong to one, and none names its trace.
pub(super) fn without_spans(filter: Targets) -> Targets {
    filter.with_target(emmer_runtime::trace::TARGET, LevelFilter::OFF)
}

/// The filter that lets nothing through.
pub(super) fn none() -> Targets {
    Targets::new().with_default(LevelFilter::OFF)
}

/// The filter that a text stands for: levels, and targets with levels.
pub(super) fn filter(text: &str) -> Result<Targets, String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // To the parser a word alone is a target of which everything is logged. Nearly always it is
        // a level that is written wrong.
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        if level.is_empty() {
            return Err(format!(
                "{part:?} has no level: expected off, error, warn, info, debug or trace, or a \
                 list as in warn,emmer_runtime=debug"
            ));
        }
        if level.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{level:?} is not a level: expected off, error, warn, info, debug or trace, or a \
                 list as in warn,emmer_runtime=debug"
            ));
        }
    }
    text.parse().map_err(|error: ParseError| error.to_string())
}
