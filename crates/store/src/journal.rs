//! A journal of a grain in the table of grain states: events that are only ever added, and now and
//! then a snapshot of their sum.
//!
//! A journal `orders` has a head, the row `orders`, with its counts; a row for each append
//! (`orders~000000000001`, ...); and the newest snapshot (`orders~s000000000100` stands for the
//! first 100 appends). Every commit writes the head under the etag that was read, so one of two
//! writers is refused. Each snapshot has its own row: a reader with an old head finds it gone, and
//! reads again, but never takes a newer snapshot for it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use emmer_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::contract::{Etag, Mutation, Result};
use crate::grain_rows::{Committed, GrainRows, RowName};
use crate::stored::{ClearOutcome, ROW_BYTES, StoredState, WriteOutcome};

/// Encoding of heads, as the store's `Format` column says it.
const HEAD_FORMAT: &str = "journal";

/// Head of a journal: its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of events that were ever appended.
    pub events: u64,
    /// Number of appends: their rows are numbered from 1.
    pub appends: u64,
    /// Number of appends that were removed, the oldest ones. All of them are in the snapshot.
    pub removed: u64,
    /// Number of appends in the snapshot; 0 when there is none.
    pub snapshot: u64,
}

/// Rows that are written with a new head.
#[derive(Debug)]
pub enum Change {
    /// The row of one more append, with these events.
    Append(Stored),
    /// A snapshot that replaces this number of appends.
    Snapshot(Stored, u64),
    /// Nothing.
    Nothing,
}

/// A value as it is to be stored.
#[derive(Debug)]
pub struct Stored {
    /// Encoding of the payload.
    pub format: String,
    /// The encoded value.
    pub payload: Arc<[u8]>,
}

/// The place of one journal of one grain.
pub struct JournalSlot {
    rows: GrainRows,
    name: RowName,
}

impl fmt::Debug for JournalSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JournalSlot({} {})", self.rows.partition, self.name.key)
    }
}

impl JournalSlot {
    pub(crate) fn new(rows: GrainRows, name: &str) -> Self {
        Self { rows, name: RowName::of(name) }
    }

    /// The most bytes of the events of one append, and of a snapshot.
    pub fn bytes_max(&self) -> usize {
        // The head is in the same commit.
        self.rows.bytes_max.saturating_sub(ROW_BYTES)
    }

    fn append_row(&self, number: u64) -> RowName {
        self.name.part(&format!("{number:012}"))
    }

    fn snapshot_row(&self, appends: u64) -> RowName {
        self.name.part(&format!("s{appends:012}"))
    }

    /// Reads the head and its etag. None when nothing was ever appended, or the journal is cleared.
    ///
    /// # Errors
    /// As the store; `Corrupt` when the row is no head.
    pub async fn head(&self) -> Result<Option<(Head, Etag)>> {
        let Some(found) = self.rows.read(&self.name).await? else { return Ok(None) };
        let corrupt = |detail: &str| self.rows.corrupt("read", &self.name, detail);
        if &*found.format != HEAD_FORMAT {
            return Err(corrupt("the row is a state, no journal"));
        }
        let head: Head = serde_json::from_slice(&found.payload)
            .map_err(|error| corrupt(&format!("the head of the journal: {error}")))?;
        if head.removed > head.snapshot || head.snapshot > head.appends {
            return Err(corrupt("the head of the journal contradicts itself"));
        }
        Ok(Some((head, found.etag)))
    }

    /// Reads the events of one append. None when its row does not exist.
    ///
    /// # Errors
    /// As the store.
    pub async fn append(&self, number: u64) -> Result<Option<StoredState>> {
        self.rows.read(&self.append_row(number)).await
    }

    /// Reads the snapshot of this number of appends; none when it is not there.
    ///
    /// # Errors
    /// As the store.
    pub async fn snapshot(&self, appends: u64) -> Result<Option<StoredState>> {
        self.rows.read(&self.snapshot_row(appends)).await
    }

    /// Writes `head` and `change`, and removes the rows of the appends `remove`, if the head still
    /// is what was read. `expected` is the etag that was read; None: there was no head.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn write(
        &self,
        expected: Option<&Etag>,
        head: &Head,
        change: Change,
        remove: Range<u64>,
        modified: Timestamp,
    ) -> Result<WriteOutcome> {
        let text = serde_json::to_vec(head)
            .map_err(|error| self.rows.corrupt("write", &self.name, &error.to_string()))?;
        let row = self.rows.row(&self.name, HEAD_FORMAT, text.into(), modified);
        let mut mutations = vec![self.rows.put(row, expected)];
        let insert = |name: &RowName, stored: Stored| Mutation::Insert {
            row: self.rows.row(name, &stored.format, stored.payload, modified),
        };
        match change {
            Change::Append(events) => {
                mutations.push(insert(&self.append_row(head.appends), events));
            }
            Change::Snapshot(state, before) => {
                mutations.push(insert(&self.snapshot_row(head.snapshot), state));
                mutations.extend((before > 0).then(|| delete(&self.snapshot_row(before))));
            }
            Change::Nothing => {}
        }
        mutations.extend(remove.map(|number| delete(&self.append_row(number))));
        Ok(match self.rows.commit(mutations).await? {
            Committed::Conflict => WriteOutcome::EtagMismatch,
            Committed::Unknown(error) => WriteOutcome::Unknown(error),
            Committed::Done(Some(etag)) => WriteOutcome::Written(etag),
            Committed::Done(None) => WriteOutcome::Unknown(self.rows.no_etag(&self.name)),
        })
    }

    /// Deletes the head, if it is unchanged since the read, and the snapshot. The rows of appends
    /// have to be removed before.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn delete(&self, expected: &Etag, head: &Head) -> Result<ClearOutcome> {
        let etag = Some(expected.clone());
        let mut mutations = vec![Mutation::Delete { row_key: self.name.key.clone(), etag }];
        mutations.extend((head.snapshot > 0).then(|| delete(&self.snapshot_row(head.snapshot))));
        Ok(match self.rows.commit(mutations).await? {
            Committed::Conflict => ClearOutcome::EtagMismatch,
            Committed::Unknown(error) => ClearOutcome::Unknown(error),
            Committed::Done(_) => ClearOutcome::Cleared,
        })
    }
}

/// Deletes a row that is there.
fn delete(name: &RowName) -> Mutation {
    Mutation::Delete { row_key: name.key.clone(), etag: None }
}
