//! Commits like those of membership, the version row and its rows, and a judge that says row by row
//! whether such a commit is there whole or not at all.

use std::sync::Arc;

use emmer_store::silos::VERSION_ROW;
use emmer_store::{
    CommitOutcome, Etag, Mutation, Result, StoreErrorKind, StoredRow, SystemStore, Value,
};

use super::rows::{NUMBERS, number, row};

/// Numbers of rows as well as the version row: a silo's own, those of a few votes, those of a large
/// clean-up.
pub const SIZES: [usize; 3] = [1, 3, 80];

/// Effect of a commit in addition to replacing the version row. Stores may send the two in
/// different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It writes every row.
    Writes,
    /// It writes all rows but the last, and deletes that one if it exists.
    Deletes,
}

/// Both shapes.
pub const SHAPES: [Shape; 2] = [Shape::Writes, Shape::Deletes];

/// A partition that is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number in the version row, 0 without one.
    pub version: i64,
    /// The etag of the version row.
    etag: Option<Etag>,
    /// The keys of the other rows.
    keys: Vec<String>,
}

impl Found {
    /// The commit that comes next, of `size` rows as well as the version row. Its version row lists
    /// the rows that are there afterwards, each with the version's number.
    pub fn next(&self, size: usize, shape: Shape) -> Vec<Mutation> {
        let n = self.version + 1;
        let mut keys: Vec<String> = (0..size).map(|i| format!("r{i:03}")).collect();
        let mut deleted = None;
        if shape == Shape::Deletes && keys.last().is_some_and(|last| self.keys.contains(last)) {
            deleted = keys.pop();
        }
        let version = row(VERSION_ROW, n).with("Text", Value::Text(keys.join(" ").into()));
        let first = match self.etag.clone() {
            Some(etag) => Mutation::Replace { row: version, etag },
            None => Mutation::Insert { row: version },
        };
        let upserts = keys.into_iter().map(|key| Mutation::Upsert { row: row(key, n) });
        let delete = deleted.map(|row_key| Mutation::Delete { row_key, etag: None });
        std::iter::once(first).chain(upserts).chain(delete).collect()
    }
}

/// The rows, or the description of how they are torn.
fn examine(rows: &[StoredRow]) -> std::result::Result<Found, String> {
    let (versions, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|found| found.row.key() == VERSION_ROW);
    let keys: Vec<String> = others.iter().map(|found| found.row.key().to_owned()).collect();
    let Some(version) = versions.first() else {
        return if keys.is_empty() {
            Ok(Found::default())
        } else {
            Err(format!("no version, but {keys:?}"))
        };
    };
    let n = number(version);
    let Some(Value::Text(listed)) = version.row.get("Text") else {
        return Err("a version of no rows".into());
    };
    let numbers: Vec<i64> = others.iter().map(|found| number(found)).collect();
    if listed.split_whitespace().eq(keys.iter().map(String::as_str))
        && numbers.iter().all(|m| *m == n)
    {
        return Ok(Found { version: n, etag: Some(version.etag.clone()), keys });
    }
    Err(format!("version {n} with the rows {listed:?}, but there are {keys:?} with {numbers:?}"))
}

/// Reads a partition.
///
/// # Panics
/// It is torn, or cannot be read.
pub async fn read(store: &Arc<dyn SystemStore>, partition: &str) -> Found {
    examine(&store.read_partition(&NUMBERS, partition).await.unwrap()).unwrap()
}

/// Makes the next commit in a partition.
///
/// # Panics
/// It does not happen.
pub async fn advance(store: &Arc<dyn SystemStore>, partition: &str, size: usize, shape: Shape) {
    let next = read(store, partition).await.next(size, shape);
    let outcome = store.commit(&NUMBERS, partition, next).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{partition}: {outcome:?}");
}

/// Asks for a commit that conflicts, so that what a connection prepares once is prepared.
///
/// # Panics
/// It does not conflict.
pub async fn warm_up(store: &Arc<dyn SystemStore>, partition: &str, size: usize, shape: Shape) {
    let mut stale = read(store, partition).await;
    stale.etag = Some("1".into());
    let outcome = store.commit(&NUMBERS, partition, stale.next(size, shape)).await.unwrap();
    assert_eq!(outcome, CommitOutcome::Conflict(0), "{partition}");
}

/// Commits whose clients failed, each in a partition of its own so that no later one mends it.
#[derive(Debug, Default)]
pub struct Ledger(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    partition: String,
    /// The lowest and highest version that may be there.
    least: i64,
    most: i64,
}

impl Ledger {
    /// Notes how a commit ended that moves `partition` on from `before`.
    ///
    /// # Panics
    /// By a conflict, for no other process writes; by an error of another kind than `Unavailable`.
    pub fn ended(&mut self, partition: String, before: i64, outcome: Result<CommitOutcome>) {
        let (least, most) = match outcome {
            Ok(CommitOutcome::Committed(_)) => (before + 1, before + 1),
            Ok(CommitOutcome::Unknown(_)) => (before, before + 1),
            Err(error) if error.kind == StoreErrorKind::Unavailable => (before, before),
            other => panic!("{partition}: {other:?}"),
        };
        self.between(partition, least, most);
    }

    /// Notes the versions that may be there.
    pub fn between(&mut self, partition: String, least: i64, most: i64) {
        self.0.push(Entry { partition, least, most });
    }

    /// Judges every partition: it is whole, at a version it may have. Answers how many commits
    /// there were, how many of an unknown outcome, how many of these happened.
    ///
    /// # Panics
    /// One is torn, or at another version; all of these are named.
    pub async fn judge(&self, store: &Arc<dyn SystemStore>) -> String {
        let (mut wrong, mut unknown, mut happened) = (Vec::new(), 0, 0);
        for Entry { partition, least, most } in &self.0 {
            match examine(&store.read_partition(&NUMBERS, partition).await.unwrap()) {
                Ok(found) if (*least..=*most).contains(&found.version) => {
                    unknown += usize::from(least < most);
                    happened += usize::from(least < most && found.version == *most);
                }
                Ok(found) => {
                    wrong.push(format!(
                        "{partition}: version {}, not {least} to {most}",
                        found.version
                    ));
                }
                Err(torn) => wrong.push(format!("{partition}: torn: {torn}")),
            }
        }
        let count = self.0.len();
        assert!(wrong.is_empty(), "{} of {count} commits: {wrong:#?}", wrong.len());
        format!("{count} commits, {unknown} of them unknown, {happened} of these happened")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(mutations: Vec<Mutation>) -> Vec<StoredRow> {
        let mut rows: Vec<StoredRow> = mutations
            .into_iter()
            .filter_map(|mutation| match mutation {
                Mutation::Insert { row }
                | Mutation::Replace { row, .. }
                | Mutation::Upsert { row } => Some(StoredRow { row, etag: "e".into() }),
                Mutation::Delete { .. } | Mutation::Check { .. } => None,
            })
            .collect();
        rows.sort_by(|a, b| a.row.key().cmp(b.row.key()));
        rows
    }

    #[test]
    fn every_part_of_a_commit_is_missed() {
        let empty = Found::default();
        assert_eq!(examine(&[]), Ok(empty.clone()));
        let first = examine(&stored(empty.next(3, Shape::Writes))).unwrap();
        for shape in SHAPES {
            let (before, after) =
                (stored(empty.next(3, Shape::Writes)), stored(first.next(3, shape)));
            assert_eq!(examine(&after).unwrap().version, 2);
            for old in &before {
                let torn: Vec<StoredRow> = before
                    .iter()
                    .filter_map(|row| {
                        let key = row.row.key();
                        let new = after.iter().find(|new| new.row.key() == key);
                        if key == old.row.key() { Some(row) } else { new }
                    })
                    .cloned()
                    .collect();
                assert!(examine(&torn).is_err(), "{shape:?}: all but {}", old.row.key());
            }
            let only_rows: Vec<StoredRow> =
                after.into_iter().filter(|row| row.row.key() != VERSION_ROW).collect();
            assert!(examine(&only_rows).is_err());
        }
    }
}
