//! What a store believes about rows: that they are there.
//!
//! Only guesses: the server itself compares before anything is written. A right one saves a commit
//! its first attempt.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use emmer_store::TableDecl;

/// The most rows that are remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 50_000;

/// The rows that are believed to be there, by table, partition and key, which hold no control
/// characters.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<BTreeSet<String>>);

fn name(table: &TableDecl, partition: &str, row_key: &str) -> String {
    format!("{}\n{partition}\n{row_key}", table.name)
}

impl Guesses {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Guesses may be wrong anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a row is believed to be there.
    pub(crate) fn is_there(&self, table: &TableDecl, partition: &str, row_key: &str) -> bool {
        self.lock().contains(&name(table, partition, row_key))
    }

    /// A row was seen, or seen to be missing.
    pub(crate) fn learn(&self, table: &TableDecl, partition: &str, row_key: &str, is_there: bool) {
        let mut all = self.lock();
        if !is_there {
            all.remove(&name(table, partition, row_key));
            return;
        }
        if all.len() >= ROWS_MAX {
            all.clear();
        }
        all.insert(name(table, partition, row_key));
    }
}
