//! The one abstraction over storage: a flat partitioned table (`docs/store.md`).
//!
//! Every family of servers implements [`SystemStore`] once; everything durable is written once on
//! top. The rules, each a case of `emmer_test_servers::suite::conformance`:
//!
//! * a commit is atomic over its partition, and a failed commit has no effect;
//! * an update of a missing row never creates it;
//! * `read_partition` is a snapshot, also when the server pages;
//! * an unknown outcome is reported as [`CommitOutcome::Unknown`], never as a failure;
//! * [`SystemStore::touch`] changes no etag: a heartbeat never makes a vote lose its
//!   compare-and-set;
//! * a volatile column (one a touch may set) is written by `Insert`, by the `Upsert` that creates
//!   its row and by a touch; a `Replace` or an `Upsert` of a row that exists leaves it alone,
//!   whether it gives the column or not. So a writer may hand over whole rows read a while ago and
//!   never turns a heartbeat back;
//! * partitions whose names share a prefix do not see each other;
//! * errors name the store and the operation and never hold a password.
//!
//! A store that locks rows locks those of a commit in one order: first the row with the key
//! [`VERSION_ROW`](crate::silos::VERSION_ROW), where writers queue before they hold other rows,
//! then by the bytes of the keys. So two commits never deadlock.

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;

use crate::examine::Examination;
use crate::limits::StoreLimits;
use crate::table::{Row, TableDecl, Value};

/// A boxed future, as the object-safe trait returns them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The token of a row's content: changes with every commit that writes the row, never with a touch.
/// Opaque; equal only to itself. Given for another row it is a conflict, unless one commit wrote
/// both.
pub type Etag = Arc<str>;

/// One change of one row inside a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Adds a row that must not exist.
    Insert {
        /// The new row; columns left out are null.
        row: Row,
    },
    /// Replaces a row that must exist with this etag. Volatile columns keep their value, even when
    /// `row` gives another; other columns left out become null.
    Replace {
        /// The row's new content.
        row: Row,
        /// The etag it must have now.
        etag: Etag,
    },
    /// Writes a row whether it exists or not. A new row gets all of `row`; in a row that exists
    /// volatile columns keep their value, even when `row` gives another, and other columns left out
    /// become null.
    Upsert {
        /// The row's new content.
        row: Row,
    },
    /// Deletes a row that must exist, with this etag if one is given.
    Delete {
        /// The row key.
        row_key: String,
        /// The etag it must have now; any when none.
        etag: Option<Etag>,
    },
    /// Changes nothing; the row must exist with this etag.
    Check {
        /// The row key.
        row_key: String,
        /// The etag it must have now.
        etag: Etag,
    },
}

impl Mutation {
    /// The key of the row this mutation is about.
    pub fn row_key(&self) -> &str {
        match self {
            Self::Insert { row } | Self::Replace { row, .. } | Self::Upsert { row } => row.key(),
            Self::Delete { row_key, .. } | Self::Check { row_key, .. } => row_key,
        }
    }

    /// Returns true if its condition holds for a row with the etag `now`; None: the row does not
    /// exist.
    pub fn holds(&self, now: Option<&Etag>) -> bool {
        self.holds_where(now, |now, etag| now == etag)
    }

    /// Like [`holds`](Self::holds) for a server that keeps another value instead of an etag, `now`
    /// for this row. `is_same` compares it with an etag.
    pub fn holds_where<E>(&self, now: Option<E>, is_same: impl FnOnce(E, &Etag) -> bool) -> bool {
        match self {
            Self::Insert { .. } => now.is_none(),
            Self::Upsert { .. } => true,
            Self::Delete { etag: None, .. } => now.is_some(),
            Self::Replace { etag, .. }
            | Self::Check { etag, .. }
            | Self::Delete { etag: Some(etag), .. } => now.is_some_and(|now| is_same(now, etag)),
        }
    }
}

/// Outcome of a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitOutcome {
    /// All of it happened. One entry per mutation: the row's new etag, none for `Delete` and
    /// `Check`.
    Committed(Vec<Option<Etag>>),
    /// None of it happened: the condition of this mutation (by position) did not hold.
    Conflict(usize),
    /// All of it happened or none: the connection broke between request and answer. Read to find
    /// out; do not treat it as a failure.
    Unknown(StoreError),
}

/// A row as read, with its etag.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRow {
    /// The columns.
    pub row: Row,
    /// The token for a conditional mutation.
    pub etag: Etag,
}

/// Error of a store. Except for [`CommitOutcome::Unknown`], nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The kind, for a program.
    pub kind: StoreErrorKind,
    /// The store, as scheme and place without credentials, e.g. `sqlite:///var/lib/emmer.db`.
    pub store: String,
    /// The operation and its subject, e.g. `commit silo_instances/prod`.
    pub operation: String,
    /// Error in the server's words, without credentials.
    pub detail: String,
}

/// The kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The server cannot be reached or does not answer: try again later.
    Unavailable,
    /// The server is reached and refuses: credentials, permissions, a missing database.
    Refused,
    /// The row or table asked for is not there.
    NotFound,
    /// The request breaks a rule of the contract: unknown column, wrong type, too many mutations.
    Invalid,
    /// The stored data cannot be understood: another schema version, a foreign writer.
    Corrupt,
    /// The whole store is damaged, as a file is whose pages are not its own. Its rows cannot be
    /// trusted, and it no longer takes writes.
    Damaged,
}

impl StoreError {
    /// An error of `kind`: the store (scheme and place), the operation and its subject, what went
    /// wrong.
    pub fn new(
        kind: StoreErrorKind,
        store: impl Into<String>,
        operation: impl Into<String>,
        detail: impl fmt::Display,
    ) -> Self {
        Self { kind, store: store.into(), operation: operation.into(), detail: detail.to_string() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.store, self.operation, self.detail)
    }
}

impl std::error::Error for StoreError {}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A server that keeps Emmer's tables. Implementations are cheap to share and safe to call
/// concurrently.
///
/// A table is used only after [`ensure_tables`](Self::ensure_tables) made it, in this process or
/// another; before, every operation answers [`StoreErrorKind::NotFound`]. Every request is checked
/// by [`crate::validate`] before anything is sent, so what one store refuses as
/// [`StoreErrorKind::Invalid`] all refuse.
pub trait SystemStore: Send + Sync + 'static {
    /// Scheme and place without credentials, for messages: `sqlite:///var/lib/emmer.db`.
    fn describe(&self) -> String;

    /// Maximum time of a request, connecting included, before the store gives it up; None when the
    /// store does not say. A request that was given up has ended on the server as well, or ends
    /// there within that time.
    fn request_timeout(&self) -> Option<Duration> {
        None
    }

    /// Size of requests that the store takes at once. A request beyond it is `Invalid` and changes
    /// nothing.
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// Returns true if the server holds every row in memory, so that rows without a
    /// reader cost as much as the others.
    fn keeps_in_memory(&self) -> bool {
        false
    }

    /// Returns true if every request is over at its first poll, on whatever thread: the rows are in
    /// this process.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Creates missing parts of `tables`, idempotently, also when several processes start at once.
    ///
    /// # Errors
    /// `Corrupt` when a table exists with another shape or a newer schema version. One with an
    /// older version is brought forward where the store can add columns, else it is `Corrupt` too.
    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>>;

    /// All rows of a partition as one consistent snapshot, ordered by row key; empty when there are
    /// none.
    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>>;

    /// One row, or none.
    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>>;

    /// Some rows of a partition, at most `limit`
    /// ([`SAMPLE_ROWS_MAX`](crate::validate::SAMPLE_ROWS_MAX)), without reading the contents of the
    /// others; all of them when there are no more. Ordered by row key. Each row is as it was at
    /// some moment during the read; the whole is not a snapshot.
    ///
    /// Rows from the key `from` on, and around, where the server [keeps an
    /// order](Self::keeps_order); otherwise any rows. Ask from different keys, so that silos do not
    /// all get the same rows.
    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>>;

    /// Returns true if [`read_some`](Self::read_some) gives the very next rows from its key on.
    fn keeps_order(&self) -> bool {
        true
    }

    /// The rows of every partition whose `column` (an indexed integer column of `table`) lies in
    /// `range`. A range whose start is above its end wraps around. Ordered by partition, then row
    /// key. At most `limit` rows.
    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>>;

    /// Applies all of `mutations` to one partition, or none: at most
    /// [`COMMIT_MUTATIONS_MAX`](emmer_core::limits::COMMIT_MUTATIONS_MAX), at most one per row.
    /// Their order decides only which conflict is reported (the first), not which row is locked
    /// first.
    ///
    /// # Errors
    /// Any error means that nothing was changed; an outcome that is not known is
    /// [`CommitOutcome::Unknown`].
    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>>;

    /// Sets one volatile column of one row without changing any etag.
    ///
    /// # Errors
    /// `NotFound` when the row is missing.
    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>>;

    /// Adds rows that never change (statistics). An existing row with the same key is kept. At most
    /// [`APPEND_ROWS_MAX`](crate::validate::APPEND_ROWS_MAX) rows. Not atomic where the server has
    /// no cheap way: repeat the same append after an error, and it adds the missing rows.
    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>>;

    /// Deletes the rows of `partition` whose time `column` is before `cutoff`; returns how many.
    /// Rows without a time stay.
    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>>;

    /// Examines the server for an operator. Writes nothing and makes nothing. Things that it may
    /// not ask are left out or are findings. A store that knows nothing keeps this default.
    ///
    /// # Errors
    /// The server cannot be reached.
    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async { Ok(Examination::default()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_about_the_row_as_it_is_now() {
        let (row, key) = (|| Row::new("r"), || "r".to_owned());
        let (this, other): (Etag, Etag) = ("7".into(), "8".into());
        // Where no row is, where it has the etag that is named, and where it has another.
        let cases = [
            (Mutation::Insert { row: row() }, [true, false, false]),
            (Mutation::Upsert { row: row() }, [true, true, true]),
            (Mutation::Delete { row_key: key(), etag: None }, [false, true, true]),
            (Mutation::Delete { row_key: key(), etag: Some(this.clone()) }, [false, true, false]),
            (Mutation::Replace { row: row(), etag: this.clone() }, [false, true, false]),
            (Mutation::Check { row_key: key(), etag: this.clone() }, [false, true, false]),
        ];
        for (mutation, expected) in cases {
            let found = [None, Some(&this), Some(&other)].map(|now| mutation.holds(now));
            assert_eq!(found, expected, "{mutation:?}");
        }
    }
}
