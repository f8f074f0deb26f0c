//! The input of the demo and its expected totals: known before anything is started.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use emmer_example_flights::streams::Streams;
use emmer_example_flights::truth::Truth;
use emmer_example_flights::{BUNDLED, file};

use crate::exit::{Code, Failure, Result};

/// The departures and the right totals.
pub(super) struct Input {
    pub(super) streams: Arc<Streams>,
    pub(super) truth: Truth,
}

/// Reads and checks the whole file at `path`; None: the file in the repository.
pub(super) fn load(path: Option<&Path>, rows: Option<usize>) -> Result<Input> {
    let name =
        path.map_or_else(|| "the bundled data".to_owned(), |path| path.display().to_string());
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(
            Code::Input,
            format!("{name}: {error}; no silo was started and nothing was replayed"),
        )
    };
    let departures = match path {
        Some(path) => file::read(File::open(path).map_err(|error| wrong(&error))?, rows),
        None => file::read(BUNDLED, rows),
    };
    let departures = departures.map_err(|error| wrong(&error))?;
    let truth = Truth::of(&departures);
    Ok(Input { streams: Arc::new(Streams::new(departures)), truth })
}
