//! A grain's state as it is stored: the table's columns, a row, and what became of a write.

use std::sync::Arc;

use emmer_core::Timestamp;

use crate::contract::{Etag, StoreError};
use crate::table::{Column, ColumnType, TableDecl};

/// The declaration of the table. PartitionKey is `service/type/kind.key`, RowKey is the state's
/// name ([`crate::keys`]); the columns repeat them whole, for an administrator and to tell apart
/// keys that had to be cut.
///
/// Each grain has a partition of its own, so a store that serialises the work of a partition
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

/// Maximum bytes of a row without its state: a key of 1 KiB twice, and names.
pub(crate) const ROW_BYTES: usize = 4 << 10;

/// Outcome of [`StateSlot::write`](crate::StateSlot::write).
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// It is written; this is the new etag.
    Written(Etag),
    /// The state is not written: it is no longer the expected one (another writer wrote, cleared or
    /// created it).
    EtagMismatch,
    /// It may or may not be written. Read to find out.
    Unknown(StoreError),
}

/// Outcome of [`StateSlot::clear`](crate::StateSlot::clear).
#[derive(Clone, Debug, PartialEq)]
pub enum ClearOutcome {
    /// The state is gone.
    Cleared,
    /// It is not cleared: the state is no longer the expected one.
    EtagMismatch,
    /// It may or may not be cleared. Read to find out.
    Unknown(StoreError),
}

/// A state as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredState {
    /// The encoded state.
    pub payload: Arc<[u8]>,
    /// Encoding of the payload, e.g. `msgpack`.
    pub format: Arc<str>,
    /// Time at which it was written, by the writer's wall clock.
    pub modified: Timestamp,
    /// The token for the next write.
    pub etag: Etag,
}
