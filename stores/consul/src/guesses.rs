//! The beliefs of a store about its server: the times at which the fence and the rows of a
//! partition were last written.
//!
//! Only guesses: every commit checks them. Right ones save a read before an upsert, which must know
//! whether its row is new.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most rows that are remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 50_000;

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guess {
    /// Index of the fence's write; 0: there is no fence.
    pub(crate) fence: i64,
    /// Indexes at which rows were written, by row key. Rows that are not here are believed not to
    /// exist.
    pub(crate) rows: BTreeMap<String, i64>,
}

/// All partitions, by their prefixes.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<BTreeMap<String, Guess>>);

impl Guesses {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Guess>> {
        // Guesses may be wrong anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Beliefs about some rows of a partition.
    pub(crate) fn about<'a>(&self, prefix: &str, keys: impl Iterator<Item = &'a str>) -> Guess {
        let all = self.lock();
        let Some(found) = all.get(prefix) else { return Guess::default() };
        let rows = keys
            .filter_map(|key| found.rows.get(key).map(|index| (key.to_owned(), *index)))
            .collect();
        Guess { fence: found.fence, rows }
    }

    /// The fence of a partition was seen.
    pub(crate) fn learn_fence(&self, prefix: &str, index: i64) {
        self.make_room(1);
        self.lock().entry(prefix.to_owned()).or_default().fence = index;
    }

    /// Rows of a partition were seen, or (0) seen to be missing.
    pub(crate) fn learn<'a>(
        &self,
        prefix: &str,
        rows: impl ExactSizeIterator<Item = (&'a str, i64)>,
    ) {
        self.make_room(rows.len());
        let mut all = self.lock();
        let known = all.entry(prefix.to_owned()).or_default();
        for (key, index) in rows {
            if index == 0 {
                known.rows.remove(key);
            } else {
                known.rows.insert(key.to_owned(), index);
            }
        }
    }

    fn make_room(&self, more: usize) {
        let mut all = self.lock();
        let rows: usize = all.values().map(|guess| 1 + guess.rows.len()).sum();
        if rows + more > ROWS_MAX {
            all.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_kept_by_partition_and_bounded() {
        let guesses = Guesses::default();
        guesses.learn_fence("p/", 7);
        guesses.learn("p/", [("a", 1), ("b", 2)].into_iter());
        guesses.learn("p/", [("b", 0)].into_iter());
        let rows = BTreeMap::from([("a".to_owned(), 1)]);
        assert_eq!(guesses.about("p/", ["a", "b", "c"].into_iter()), Guess { fence: 7, rows });
        assert_eq!(guesses.about("q/", ["a"].into_iter()), Guess::default());
        let many: Vec<String> = (0..ROWS_MAX).map(|n| n.to_string()).collect();
        guesses.learn("q/", many.iter().map(|key| (key.as_str(), 1)));
        assert_eq!(guesses.about("p/", ["a"].into_iter()), Guess::default());
    }
}
