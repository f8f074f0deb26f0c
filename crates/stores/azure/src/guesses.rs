//! What a store believes about rows: the service's etag that goes with a row's etag, and the row's volatile columns.
//!
//! Only guesses, each seen at one moment: the service itself compares its etag before anything is written. Right ones save a
//! commit the read before it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use emmer_store::{Etag, StoredRow, TableDecl, Value};

/// The most rows that are remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 50_000;

/// A row as it was at one moment, as far as a commit must know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The row's etag.
    pub(crate) etag: Etag,
    /// The service's own: it changes with a touch as well.
    pub(crate) service_etag: String,
    /// The volatile columns.
    pub(crate) volatile: Vec<(&'static str, Value)>,
}

impl Seen {
    /// What is to be known of a row that was read.
    pub(crate) fn of(table: &TableDecl, stored: &StoredRow, service_etag: &str) -> Self {
        let volatile = volatile(table, stored.row.columns()).collect();
        Self { etag: stored.etag.clone(), service_etag: service_etag.to_owned(), volatile }
    }
}

/// Those of the columns that are volatile.
pub(crate) fn volatile<'a>(
    table: &'a TableDecl,
    columns: &'a [(&'static str, Value)],
) -> impl Iterator<Item = (&'static str, Value)> + 'a {
    let is_volatile = |name: &str| table.column(name).is_some_and(|(_, column)| column.volatile);
    columns.iter().filter(move |(name, _)| is_volatile(name)).cloned()
}

/// All rows, by table, partition and key, which hold no control characters.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<BTreeMap<String, Seen>>);

fn name(table: &TableDecl, partition: &str, row_key: &str) -> String {
    format!("{}\n{partition}\n{row_key}", table.name)
}

impl Guesses {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        // Guesses may be wrong anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is believed about a row; none when nothing is.
    pub(crate) fn about(&self, table: &TableDecl, partition: &str, row_key: &str) -> Option<Seen> {
        self.lock().get(&name(table, partition, row_key)).cloned()
    }

    /// A row was seen, or (none) is not what it was.
    pub(crate) fn learn(&self, table: &TableDecl, partition: &str, row_key: &str, seen: Option<Seen>) {
        let mut all = self.lock();
        let name = name(table, partition, row_key);
        match seen {
            None => drop(all.remove(&name)),
            Some(seen) => {
                if all.len() >= ROWS_MAX {
                    all.clear();
                }
                all.insert(name, seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DECL: TableDecl =
        TableDecl { name: "t", partition_key: "P", row_key: "R", columns: &[], schema_version: 1 };

    #[test]
    fn guesses_are_apart_forgotten_and_bounded() {
        let (guesses, seen) = (
            Guesses::default(),
            Seen { etag: "1".into(), service_etag: "W/1".to_owned(), volatile: Vec::new() },
        );
        guesses.learn(&DECL, "p", "r", Some(seen.clone()));
        assert_eq!(guesses.about(&DECL, "p", "r"), Some(seen.clone()));
        assert_eq!((guesses.about(&DECL, "p", "r2"), guesses.about(&DECL, "pr", "")), (None, None));
        guesses.learn(&DECL, "p", "r", None);
        assert_eq!(guesses.about(&DECL, "p", "r"), None);
        for n in 0..=ROWS_MAX {
            guesses.learn(&DECL, "p", &n.to_string(), Some(seen.clone()));
        }
        assert_eq!(guesses.lock().len(), 1);
    }
}
