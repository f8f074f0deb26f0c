//! The rows of one grain in the table of grain states: how they are named, written and understood.

use std::sync::Arc;

use emmer_core::Timestamp;

use crate::contract::{
    CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
use crate::keys;
use crate::stored::{GRAIN_STATE, StoredState};
use crate::table::{Row, Value};

/// The rows of one grain.
pub(crate) struct GrainRows {
    pub(crate) store: Arc<dyn SystemStore>,
    pub(crate) bytes_max: usize,
    pub(crate) partition: String,
    pub(crate) service: Arc<str>,
    pub(crate) grain_type: Arc<str>,
    pub(crate) grain_key: Arc<str>,
}

/// The name of a row, in its key and in its column.
pub(crate) struct RowName {
    pub(crate) key: String,
    text: Arc<str>,
}

impl RowName {
    /// The row of a state.
    pub(crate) fn of(state: &str) -> Self {
        // Names come from the source code; escaped all the same, a store refuses control
        // characters.
        Self { key: keys::row(state), text: keys::escape(state).into() }
    }

    /// A further row of the same name. `part` has letters and digits only.
    pub(crate) fn part(&self, part: &str) -> Self {
        // No name has a `~` when it is escaped.
        Self { key: keys::part_row(&self.text, part), text: format!("{}~{part}", self.text).into() }
    }
}

/// Outcome of a commit.
pub(crate) enum Committed {
    /// The commit happened. The new etag of the first row, if it has one.
    Done(Option<Etag>),
    /// Nothing happened: a row differs from what the caller had read.
    Conflict,
    /// It may or may not have happened.
    Unknown(StoreError),
}

impl GrainRows {
    /// A row with all its columns.
    pub(crate) fn row(
        &self,
        name: &RowName,
        format: &str,
        payload: Arc<[u8]>,
        modified: Timestamp,
    ) -> Row {
        Row::new(name.key.as_str())
            .with("ServiceId", Value::Text(self.service.clone()))
            .with("GrainType", Value::Text(self.grain_type.clone()))
            .with("GrainKey", Value::Text(self.grain_key.clone()))
            .with("StateName", Value::Text(name.text.clone()))
            .with("Format", Value::Text(format.into()))
            .with("Payload", Value::Bytes(payload))
            .with("Modified", Value::Time(modified))
    }

    /// Writes a row if it still is what was read. `expected` is the etag that was read; None: there
    /// was no row.
    pub(crate) fn put(&self, row: Row, expected: Option<&Etag>) -> Mutation {
        match expected {
            None => Mutation::Insert { row },
            Some(etag) => Mutation::Replace { row, etag: etag.clone() },
        }
    }

    pub(crate) async fn commit(&self, mutations: Vec<Mutation>) -> Result<Committed> {
        Ok(match self.store.commit(&GRAIN_STATE, &self.partition, mutations).await? {
            CommitOutcome::Conflict(_) => Committed::Conflict,
            CommitOutcome::Unknown(error) => Committed::Unknown(error),
            CommitOutcome::Committed(etags) => Committed::Done(etags.into_iter().next().flatten()),
        })
    }

    /// Reads a row; none when it is not there.
    ///
    /// # Errors
    /// As the store; `Corrupt` when it cannot be understood or belongs to another grain.
    pub(crate) async fn read(&self, name: &RowName) -> Result<Option<StoredState>> {
        let found = self.store.read_row(&GRAIN_STATE, &self.partition, &name.key).await?;
        found.map(|row| self.understand(name, row)).transpose()
    }

    fn understand(&self, name: &RowName, found: StoredRow) -> Result<StoredState> {
        let row = &found.row;
        if !self.is_ours(row) || !has(row, "StateName", &name.text) {
            return Err(self.corrupt("read", name, "the row belongs to another grain"));
        }
        match (row.get("Payload"), row.get("Format"), row.get("Modified")) {
            (
                Some(Value::Bytes(payload)),
                Some(Value::Text(format)),
                Some(Value::Time(modified)),
            ) => {
                let (payload, format) = (payload.clone(), format.clone());
                Ok(StoredState { payload, format, modified: *modified, etag: found.etag })
            }
            _ => Err(self.corrupt("read", name, "Payload, Format or Modified is null")),
        }
    }

    /// Returns true unless the row belongs to another grain, whose key was cut alike.
    fn is_ours(&self, row: &Row) -> bool {
        has(row, "ServiceId", &self.service)
            && has(row, "GrainType", &self.grain_type)
            && has(row, "GrainKey", &self.grain_key)
    }

    /// Reads every row of the grain, with its name.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub(crate) async fn read_all(&self) -> Result<Vec<(String, StoredState)>> {
        let found = self.store.read_partition(&GRAIN_STATE, &self.partition).await?;
        let ours = found.into_iter().filter(|found| self.is_ours(&found.row));
        let named = ours.map(|found| {
            let key = found.row.key().to_owned();
            let text = match found.row.get("StateName") {
                Some(Value::Text(text)) => text.clone(),
                _ => key.as_str().into(),
            };
            let name = RowName { key, text };
            let state = self.understand(&name, found)?;
            let readable = keys::unescape(&name.text).unwrap_or_else(|| name.text.to_string());
            Ok((readable, state))
        });
        named.collect()
    }

    pub(crate) fn no_etag(&self, name: &RowName) -> StoreError {
        self.corrupt("write", name, "the store gave no etag")
    }

    pub(crate) fn corrupt(&self, verb: &str, name: &RowName, detail: &str) -> StoreError {
        let operation = format!("{verb} {}/{}/{}", GRAIN_STATE.name, self.partition, name.key);
        StoreError::new(StoreErrorKind::Corrupt, self.store.describe(), operation, detail)
    }
}

fn has(row: &Row, column: &str, text: &Arc<str>) -> bool {
    matches!(row.get(column), Some(Value::Text(found)) if found == text)
}
