//! The grain state table: one row per grain and state name, guarded by its etag.

use std::fmt;
use std::sync::Arc;

use emmer_core::{ClusterId, GrainKey, Timestamp};

use crate::contract::{Etag, Mutation, Result, StoreError, StoreErrorKind, SystemStore};
use crate::grain_rows::{Committed, GrainRows, RowName};
use crate::journal::JournalSlot;
use crate::keys;
use crate::limits::StoreLimits;
use crate::stored::ROW_BYTES;
pub use crate::stored::{ClearOutcome, GRAIN_STATE, STATE_BYTES, StoredState, WriteOutcome};

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
        // A row has names and keys as well as the state.
        let bytes_max = store.limits().row_bytes.saturating_sub(ROW_BYTES);
        Self { store, service, bytes_max }
    }

    /// Sets the most bytes of a state, if the store takes as many.
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

    /// The place of one state of one grain, without a read. Keep it: its keys are made once.
    pub fn slot(&self, grain_type: &str, key: &GrainKey, state: &str) -> StateSlot {
        StateSlot(Arc::new(Slot {
            rows: self.rows(grain_type, key),
            name: Arc::new(RowName::of(state)),
        }))
    }

    /// The common part of all places of one state of a grain type. With many grains, keep this
    /// instead of their places.
    pub fn kind(&self, grain_type: &str, state: &str) -> Arc<StateKind> {
        Arc::new(StateKind {
            table: self.clone(),
            service: self.service.as_str().into(),
            grain_type: grain_type.into(),
            prefix: keys::partition_prefix(&self.service, grain_type),
            name: Arc::new(RowName::of(state)),
        })
    }

    /// The place of a journal of one grain; nothing is read yet. A state and a journal of one grain
    /// must not have the same name.
    pub fn journal(&self, grain_type: &str, key: &GrainKey, journal: &str) -> JournalSlot {
        JournalSlot::new(self.rows(grain_type, key), journal)
    }

    /// Reads every state of a grain with its name, and every row of its journals: for people. The
    /// rows of a journal `orders` are `orders`, `orders~000000000001` and so on.
    ///
    /// # Errors
    /// As the store. `Corrupt` when a row cannot be understood.
    pub async fn of_grain(
        &self,
        grain_type: &str,
        key: &GrainKey,
    ) -> Result<Vec<(String, StoredState)>> {
        self.rows(grain_type, key).read_all().await
    }

    fn rows(&self, grain_type: &str, key: &GrainKey) -> GrainRows {
        GrainRows {
            store: self.store.clone(),
            bytes_max: self.bytes_max,
            partition: keys::partition(&self.service, grain_type, key),
            service: self.service.as_str().into(),
            grain_type: grain_type.into(),
            grain_key: keys::key_text(key).into(),
        }
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

/// One state of all grains of a type.
pub struct StateKind {
    table: StateTable,
    service: Arc<str>,
    grain_type: Arc<str>,
    /// The beginning of all partitions.
    prefix: String,
    name: Arc<RowName>,
}

impl fmt::Debug for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateKind({} {})", self.grain_type, self.name.key)
    }
}

impl StateKind {
    /// The place of the state of the grain with this key.
    pub fn slot(&self, key: &GrainKey) -> StateSlot {
        let Self { table, service, grain_type, prefix, name } = self;
        let key_text = keys::key_text(key);
        let rows = GrainRows {
            store: table.store.clone(),
            bytes_max: table.bytes_max,
            partition: keys::partition_of(prefix, keys::kind(key), &key_text),
            service: service.clone(),
            grain_type: grain_type.clone(),
            grain_key: key_text.into(),
        };
        StateSlot(Arc::new(Slot { rows, name: name.clone() }))
    }
}

struct Slot {
    rows: GrainRows,
    name: Arc<RowName>,
}

/// The place of one state of one grain. Cheap to clone.
#[derive(Clone)]
pub struct StateSlot(Arc<Slot>);

impl fmt::Debug for StateSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateSlot({} {})", self.0.rows.partition, self.0.name.key)
    }
}

impl StateSlot {
    /// The most bytes of the state.
    pub fn bytes_max(&self) -> usize {
        self.0.rows.bytes_max
    }

    /// Reads the state, none when it was never written or is cleared.
    ///
    /// # Errors
    /// As the store. `Corrupt` when the row cannot be understood or belongs to another grain (a
    /// foreign writer, or two cut keys that collide in 128 bits of hash).
    pub async fn read(&self) -> Result<Option<StoredState>> {
        self.0.rows.read(&self.0.name).await
    }

    /// Writes the state if it still is what was read. `expected` is the etag of the last read or
    /// write; None: there was no state. `modified` is the writer's wall clock.
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
        let Slot { rows, name } = &*self.0;
        let row = rows.row(name, format, payload, modified);
        Ok(match rows.commit(vec![rows.put(row, expected)]).await? {
            Committed::Conflict => WriteOutcome::EtagMismatch,
            Committed::Unknown(error) => WriteOutcome::Unknown(error),
            Committed::Done(Some(etag)) => WriteOutcome::Written(etag),
            Committed::Done(None) => WriteOutcome::Unknown(rows.no_etag(name)),
        })
    }

    /// Deletes the state if it still is what was read.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn clear(&self, expected: &Etag) -> Result<ClearOutcome> {
        let Slot { rows, name } = &*self.0;
        let delete = Mutation::Delete { row_key: name.key.clone(), etag: Some(expected.clone()) };
        Ok(match rows.commit(vec![delete]).await? {
            Committed::Conflict => ClearOutcome::EtagMismatch,
            Committed::Unknown(error) => ClearOutcome::Unknown(error),
            Committed::Done(_) => ClearOutcome::Cleared,
        })
    }
}
