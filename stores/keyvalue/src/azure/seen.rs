//! The rows as a store believes them to be: the service's etag that goes with a row's etag, and
//! the row's volatile columns.
//!
//! Only guesses, each read at one moment: the service compares its own etag before anything is
//! written. Right ones save a commit the read before it.

use emmer_store::{Etag, Row, StoredRow, TableDecl, Value};

/// The beliefs about rows.
pub type Guesses = crate::Guesses<Seen>;

/// The parts of a row that a commit must know, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The row's etag.
    pub etag: Etag,
    /// The service's own: it changes with a touch as well.
    pub service_etag: String,
    /// The volatile columns.
    pub volatile: Vec<(&'static str, Value)>,
}

impl Seen {
    /// The knowledge of a row that was read.
    pub fn of(table: &TableDecl, stored: &StoredRow, service_etag: &str) -> Self {
        let volatile = volatile(table, stored.row.columns()).collect();
        Self { etag: stored.etag.clone(), service_etag: service_etag.to_owned(), volatile }
    }

    /// The row to be written with the volatile columns that were read. The service compares its
    /// etag, so they are unchanged.
    pub fn keep_volatile(&self, table: &TableDecl, row: &Row) -> Row {
        let is_volatile =
            |name: &str| table.column(name).is_some_and(|(_, column)| column.volatile);
        let kept = row.columns().iter().filter(|(name, _)| !is_volatile(name)).cloned();
        Row::of(row.key(), kept.chain(self.volatile.iter().cloned()).collect())
    }
}

/// The volatile ones among these columns.
pub fn volatile<'a>(
    table: &'a TableDecl,
    columns: &'a [(&'static str, Value)],
) -> impl Iterator<Item = (&'static str, Value)> + 'a {
    let is_volatile = |name: &str| table.column(name).is_some_and(|(_, column)| column.volatile);
    columns.iter().filter(move |(name, _)| is_volatile(name)).cloned()
}
