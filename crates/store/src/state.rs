//! The grain state table: one row per grain and state name, guarded by its etag.

use std::fmt;
use std::sync::Arc;

use emmer_core::{ClusterId, GrainKey, Timestamp};

use crate::contract::{
    CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
use crate::keys;
use crate::limits::StoreLimits;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// The declaration of the table. PartitionKey is `service/type/kind.key`, RowKey is the state's
/// name ([`crate::keys`]); the columns repeat them whole, for an administrator and to tell apart
/// keys that had to be cut.
///
/// Each grain has a partition of its own: a store that serialises what it does in a partition
/// serialises nothing of two grains. Nothing reads the states of several grains at one moment.
pub static GRAIN_STATE: TableDecl = TableDecl {
    name: "grain_state",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("ServiceId", ColumnType::Text),
        Column::new("GrainType", ColumnType::Text),
        Column::new("GrainKey", ColumnType::Text),
        Column::new("StateName", ColumnType::Text),
        Column::new("Format", ColumnType::Text),
        Column::new("Payload", ColumnType::Bytes),
        Column::new("Modified", ColumnType::Time),
    ],
    // 2: a partition for each grain. 1 had one for each type.
    schema_version: 2,
    one_moment: false,
};

/// The states that every store takes at least, in bytes. Larger ones depend on the store.
pub const STATE_BYTES: usize = 64 << 10;

/// The bytes of a row beside its state, at most: a key of 1 KiB twice, and names.
const ROW_BYTES: usize = 4 << 10;

/// What became of [`StateSlot::write`].
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// It is written; this is the new etag.
    Written(Etag),
    /// It is not written: the state is not the expected one any more (somebody else wrote, cleared
    /// or created it).
    EtagMismatch,
    /// It may or may not be written. Read to find out.
    Unknown(StoreError),
}

/// What became of [`StateSlot::clear`].
#[derive(Clone, Debug, PartialEq)]
pub enum ClearOutcome {
    /// The state is gone.
    Cleared,
    /// It is not cleared: the state is not the expected one any more.
    EtagMismatch,
    /// It may or may not be cleared. Read to find out.
    Unknown(StoreError),
}

/// A state as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredState {
    /// The encoded state.
    pub payload: Arc<[u8]>,
    /// How it is encoded, e.g. `msgpack`.
    pub format: Arc<str>,
    /// When it was written, by the writer's wall clock.
    pub modified: Timestamp,
    /// The token for the next write.
    pub etag: Etag,
}

/// The grain states of one service. Cheap to clone.
///
/// States belong to the service, not to a cluster: a new cluster of the same service finds them
/// again (the original's rule for service id and deployment id).
#[derive(Clone)]
pub struct StateTable {
    store: Arc<dyn SystemStore>,
    service: ClusterId,
    bytes_max: usize,
}

impl fmt::Debug for StateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateTable({} in {})", self.service, self.store.describe())
    }
}

impl StateTable {
    /// The states of `service` in `store`. A service id is written like a cluster id.
    pub fn new(store: Arc<dyn SystemStore>, service: ClusterId) -> Self {
        // A row has names and keys beside the state.
        let bytes_max = store.limits().row_bytes.saturating_sub(ROW_BYTES);
        Self { store, service, bytes_max }
    }

    /// The same with states of at most `bytes_max` bytes, if the store takes as many.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = self.bytes_max.min(bytes_max);
        self
    }

    /// The most bytes of a state.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`]; `Invalid` when the store takes no states of
    /// [`STATE_BYTES`].
    pub async fn ensure(&self) -> Result<()> {
        let needed = StoreLimits {
            mutations: 1,
            commit_bytes: STATE_BYTES,
            row_bytes: STATE_BYTES,
            ..StoreLimits::default()
        };
        if let Some(lack) = self.store.limits().lack(&needed) {
            let operation = format!("ensure {}", GRAIN_STATE.name);
            return Err(StoreError::new(
                StoreErrorKind::Invalid,
                self.store.describe(),
                operation,
                lack,
            ));
        }
        self.store.ensure_tables(&[&GRAIN_STATE]).await
    }

    /// The place of one state of one grain; nothing is read yet. Keep it: its keys are made once.
    pub fn slot(&self, grain_type: &str, key: &GrainKey, state: &str) -> StateSlot {
        StateSlot(Arc::new(Slot {
            store: self.store.clone(),
            bytes_max: self.bytes_max,
            partition: keys::partition(&self.service, grain_type, key),
            row_key: keys::row(state),
            service: self.service.as_str().into(),
            grain_type: grain_type.into(),
            grain_key: keys::key_text(key).into(),
            // Names come from the source code; escaped all the same, a store refuses control
            // characters.
            state: keys::escape(state).into(),
        }))
    }

    /// Reads a state, none when it was never written or is cleared.
    ///
    /// # Errors
    /// As [`StateSlot::read`].
    pub async fn read(
        &self,
        grain_type: &str,
        key: &GrainKey,
        state: &str,
    ) -> Result<Option<StoredState>> {
        self.slot(grain_type, key, state).read().await
    }
}

struct Slot {
    store: Arc<dyn SystemStore>,
    bytes_max: usize,
    partition: String,
    row_key: String,
    service: Arc<str>,
    grain_type: Arc<str>,
    grain_key: Arc<str>,
    state: Arc<str>,
}

/// The place of one state of one grain. Cheap to clone.
#[derive(Clone)]
pub struct StateSlot(Arc<Slot>);

impl fmt::Debug for StateSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateSlot({} {})", self.0.partition, self.0.row_key)
    }
}

impl StateSlot {
    /// The most bytes of the state.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Reads the state, none when it was never written or is cleared.
    ///
    /// # Errors
    /// As the store; `Corrupt` when the row cannot be understood or belongs to another grain (a
    /// foreign writer, or two keys that had to be cut and collide in 128 bits of hash).
    pub async fn read(&self) -> Result<Option<StoredState>> {
        let slot = &*self.0;
        let found = slot.store.read_row(&GRAIN_STATE, &slot.partition, &slot.row_key).await?;
        found.map(|row| self.understand(row)).transpose()
    }

    /// Writes the state if it still is what was read: `expected` is the etag of the last read or
    /// write, none when nothing was there. `modified` is the writer's wall clock.
    ///
    /// # Errors
    /// As the store: then nothing was changed. `Invalid` for a payload larger than the store takes.
    pub async fn write(
        &self,
        expected: Option<&Etag>,
        format: &str,
        payload: Arc<[u8]>,
        modified: Timestamp,
    ) -> Result<WriteOutcome> {
        let slot = &*self.0;
        let row = Row::new(slot.row_key.as_str())
            .with("ServiceId", Value::Text(slot.service.clone()))
            .with("GrainType", Value::Text(slot.grain_type.clone()))
            .with("GrainKey", Value::Text(slot.grain_key.clone()))
            .with("StateName", Value::Text(slot.state.clone()))
            .with("Format", Value::Text(format.into()))
            .with("Payload", Value::Bytes(payload))
            .with("Modified", Value::Time(modified));
        let mutation = match expected {
            None => Mutation::Insert { row },
            Some(etag) => Mutation::Replace { row, etag: etag.clone() },
        };
        match slot.store.commit(&GRAIN_STATE, &slot.partition, vec![mutation]).await? {
            CommitOutcome::Conflict(_) => Ok(WriteOutcome::EtagMismatch),
            CommitOutcome::Unknown(error) => Ok(WriteOutcome::Unknown(error)),
            CommitOutcome::Committed(etags) => match etags.into_iter().next().flatten() {
                Some(etag) => Ok(WriteOutcome::Written(etag)),
                None => Ok(WriteOutcome::Unknown(self.corrupt("write", "the store gave no etag"))),
            },
        }
    }

    /// Deletes the state if it still is what was read.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn clear(&self, expected: &Etag) -> Result<ClearOutcome> {
        let slot = &*self.0;
        let delete =
            Mutation::Delete { row_key: slot.row_key.clone(), etag: Some(expected.clone()) };
        match slot.store.commit(&GRAIN_STATE, &slot.partition, vec![delete]).await? {
            CommitOutcome::Conflict(_) => Ok(ClearOutcome::EtagMismatch),
            CommitOutcome::Unknown(error) => Ok(ClearOutcome::Unknown(error)),
            CommitOutcome::Committed(_) => Ok(ClearOutcome::Cleared),
        }
    }

    fn understand(&self, found: StoredRow) -> Result<StoredState> {
        let (slot, row) = (&*self.0, &found.row);
        let is =
            |column, text: &Arc<str>| matches!(row.get(column), Some(Value::Text(t)) if t == text);
        let ours = is("ServiceId", &slot.service)
            && is("GrainType", &slot.grain_type)
            && is("GrainKey", &slot.grain_key)
            && is("StateName", &slot.state);
        if !ours {
            return Err(self.corrupt("read", "the row belongs to another grain"));
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
            _ => Err(self.corrupt("read", "Payload, Format or Modified is null")),
        }
    }

    fn corrupt(&self, verb: &str, detail: &str) -> StoreError {
        let slot = &*self.0;
        let operation = format!("{verb} {}/{}/{}", GRAIN_STATE.name, slot.partition, slot.row_key);
        StoreError::new(StoreErrorKind::Corrupt, slot.store.describe(), operation, detail)
    }
}
