//! What a store believes about rows: the service's etag that goes with a row's etag, and the row's
//! volatile columns.
//!
//! Only guesses, each seen at one moment: the service itself compares its etag before anything is
//! written. Right ones save a commit the read before it.

use emmer_store::{Etag, StoredRow, TableDecl, Value};

/// What is believed about rows.
pub(crate) type Guesses = emmer_store_keyvalue::Guesses<Seen>;

/// A row as it was at one moment, as far as a commit must know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The row's etag.
    pub(crate) etag: Etag,
    /// The service's own: it changes with a touch as well.
    pub(crate) service_etag: String,
    /// The volatile columns.
    pub(crate) volatile: Vec<(&'static str, Value)>,
}

impl Seen {
    /// What is to be known of a row that was read.
    pub(crate) fn of(table: &TableDecl, stored: &StoredRow, service_etag: &str) -> Self {
        let volatile = volatile(table, stored.row.columns()).collect();
        Self { etag: stored.etag.clone(), service_etag: service_etag.to_owned(), volatile }
    }
}

/// Those of the columns that are volatile.
pub(crate) fn volatile<'a>(
    table: &'a TableDecl,
    columns: &'a [(&'static str, Value)],
) -> impl Iterator<Item = (&'static str, Value)> + 'a {
    let is_volatile = |name: &str| table.column(name).is_some_and(|(_, column)| column.volatile);
    columns.iter().filter(move |(name, _)| is_volatile(name)).cloned()
}
