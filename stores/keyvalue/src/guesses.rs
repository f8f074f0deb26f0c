//! Beliefs of a store about rows without asking.
//!
//! Only guesses, each right at one moment: the server itself compares before anything is written. A
//! right one saves a commit a request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use emmer_store::TableDecl;

/// The most rows that are remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 50_000;

/// Beliefs about rows, by table, partition and key, which hold no control characters.
#[derive(Debug)]
pub struct Guesses<T>(Mutex<BTreeMap<String, T>>);

impl<T> Default for Guesses<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

fn name(table: &TableDecl, partition: &str, row_key: &str) -> String {
    format!("{}\n{partition}\n{row_key}", table.name)
}

impl<T: Clone> Guesses<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, T>> {
        // Guesses may be wrong anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Belief about a row, if there is one.
    pub fn about(&self, table: &TableDecl, partition: &str, row_key: &str) -> Option<T> {
        self.lock().get(&name(table, partition, row_key)).cloned()
    }

    /// A row was read; None: it has changed.
    pub fn learn(&self, table: &TableDecl, partition: &str, row_key: &str, seen: Option<T>) {
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

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn guesses_are_apart_forgotten_and_bounded() {
        let guesses = Guesses::default();
        guesses.learn(&DECL, "p", "r", Some("seen"));
        assert_eq!(guesses.about(&DECL, "p", "r"), Some("seen"));
        assert_eq!((guesses.about(&DECL, "p", "r2"), guesses.about(&DECL, "pr", "")), (None, None));
        guesses.learn(&DECL, "p", "r", None);
        assert_eq!(guesses.about(&DECL, "p", "r"), None);
        for n in 0..=ROWS_MAX {
            guesses.learn(&DECL, "p", &n.to_string(), Some("seen"));
        }
        assert_eq!(guesses.lock().len(), 1);
    }
}
