//! The table as one read shows it.

use emmer_core::{SiloEntry, TableVersion};

/// Every row of the table and its version, read at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableSnapshot {
    /// The version row.
    pub version: TableVersion,
    /// Every silo row, in any order.
    pub rows: Vec<SiloEntry>,
}
