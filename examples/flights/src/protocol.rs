//! What callers and grains say to one another.

use emmer::prelude::*;
use emmer::tables::SiloAddress;
use serde::{Deserialize, Serialize};

use crate::Departure;

/// The answer to `apply`: everything up to here is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// How many departures of the grain's stream its stored totals hold; the next batch starts
    /// here.
    pub applied: u64,
    /// The silo that hosts the grain, to see grains move.
    #[serde(default)]
    pub silo: Option<SiloAddress>,
}

/// Why nothing of a batch counts as applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ApplyError {
    /// The batch starts behind the applied departures: those in between would be missed.
    #[error("the batch starts at departure {from} of the stream, but only {expected} are applied")]
    Gap {
        /// Where the batch starts.
        from: u64,
        /// Where it may start at the latest.
        expected: u64,
    },
    /// The totals could not be stored.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The part of a batch that is not applied yet.
///
/// # Errors
/// [`ApplyError::Gap`] when the batch starts behind `applied`.
pub fn unapplied(applied: u64, from: u64, batch: &[Departure]) -> Result<&[Departure], ApplyError> {
    let known = applied.checked_sub(from).ok_or(ApplyError::Gap { from, expected: applied })?;
    let known = usize::try_from(known).unwrap_or(usize::MAX);
    Ok(batch.get(known..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_what_is_known_and_refuses_gaps() {
        let all = crate::file::read(crate::BUNDLED, Some(5)).unwrap();
        assert_eq!(unapplied(0, 0, &all).unwrap(), all);
        assert_eq!(unapplied(12, 10, &all).unwrap(), &all[2..]);
        assert_eq!(unapplied(15, 10, &all).unwrap(), []);
        assert_eq!(unapplied(900, 10, &all).unwrap(), []);
        assert_eq!(unapplied(9, 10, &all), Err(ApplyError::Gap { from: 10, expected: 9 }));
    }
}
