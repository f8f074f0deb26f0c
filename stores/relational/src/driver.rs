//! The part of a server's own crate: opening connections, and running one request on one of them.

use std::future::Future;

use emmer_store::{
    Examination, Fault, Mutation, Result as Stored, Row, StoredRow, TableDecl, Value,
};

use crate::fault::Failure;
use crate::limits::Limits;

/// A request that was checked.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// All rows of a partition, ordered by row key, as one snapshot. Answered by [`Answer::Rows`].
    ReadPartition {
        /// The partition.
        partition: &'a str,
    },
    /// One row. Answered by [`Answer::Rows`].
    ReadRow {
        /// The partition.
        partition: &'a str,
        /// The row key.
        row_key: &'a str,
    },
    /// At most `at_most` rows of a partition, ordered by row key, from `from` on; with `before` the
    /// rows before it. Answered by [`Answer::Rows`].
    ReadSome {
        /// The partition.
        partition: &'a str,
        /// A row key.
        from: &'a str,
        /// Side of it.
        before: bool,
        /// The most rows; at least one.
        at_most: i64,
    },
    /// The rows of all partitions whose `column` is from `start` to `end`, or outside when `start`
    /// is above `end`. Answered by [`Answer::Rows`].
    Scan {
        /// An indexed integer column.
        column: &'a str,
        /// The first number.
        start: i64,
        /// The last number.
        end: i64,
        /// The most rows.
        at_most: i64,
    },
    /// All of `mutations` (at least one) or none. Answered by [`Answer::Verdict`].
    Commit {
        /// The partition.
        partition: &'a str,
        /// The mutations.
        mutations: &'a [Mutation],
        /// The etag of every row written.
        etag: i64,
    },
    /// One column of one row. Answered by [`Answer::Changed`].
    Touch {
        /// The partition.
        partition: &'a str,
        /// The row key.
        row_key: &'a str,
        /// A volatile column.
        column: &'a str,
        /// Its new value.
        value: &'a Value,
    },
    /// Rows that are kept if they exist. Answered by [`Answer::Changed`].
    Append {
        /// The partition.
        partition: &'a str,
        /// The rows.
        rows: &'a [Row],
        /// The etag of every row added.
        etag: i64,
    },
    /// At most `at_most` rows of a partition whose time `column` is before `cutoff` are deleted.
    /// Answered by [`Answer::Changed`].
    DeleteOlderThan {
        /// The partition.
        partition: &'a str,
        /// A time column.
        column: &'a str,
        /// The time, as a value.
        cutoff: &'a Value,
        /// The most rows.
        at_most: i64,
    },
}

/// Requests that share a statement. Each is done for itself.
#[derive(Clone, Copy, Debug)]
pub enum Each<'a> {
    /// Partitions, by their names. Answered by [`EachAnswer::Rows`].
    ReadPartition(&'a [&'a str]),
    /// Rows, as many as there are partitions and keys. Answered by [`EachAnswer::Rows`].
    Read {
        /// The partition of each row.
        partitions: &'a [&'a str],
        /// The key of each row.
        keys: &'a [&'a str],
    },
    /// Rows that must exist with their expected etags. Answered by [`EachAnswer::Done`].
    Replace(&'a [EachRow<'a>]),
    /// Rows that must not exist; what they expect has no meaning. Answered by [`EachAnswer::Done`].
    Insert(&'a [EachRow<'a>]),
}

/// One of many rows to be written. No two of them have the same partition and key.
#[derive(Clone, Copy, Debug)]
pub struct EachRow<'a> {
    /// The partition.
    pub partition: &'a str,
    /// The row's content.
    pub row: &'a Row,
    /// The etag that it must have now.
    pub expected: i64,
    /// The etag that it gets.
    pub etag: i64,
}

/// Answer to [`Each`], in the order of its requests.
#[derive(Clone, Debug, PartialEq)]
pub enum EachAnswer {
    /// The rows of each request, in the order of their keys.
    Rows(Vec<Vec<StoredRow>>),
    /// True for each row whose condition held, and which is written.
    Done(Vec<bool>),
}

/// Answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Rows.
    Rows(Vec<StoredRow>),
    /// The position of the first mutation whose condition does not hold; none when the commit
    /// happened.
    Verdict(Option<usize>),
    /// Number of rows that there were to change.
    Changed(u64),
}

/// One server's driver. [`Relational`](crate::Relational) makes a system store of it.
pub trait Driver: Sized + Send + Sync + 'static {
    /// A session on the server. Used by one request at a time.
    type Connection: Send + 'static;

    /// The most bytes of values in one commit or append.
    const REQUEST_BYTES_MAX: usize;

    /// True if [`run_each`](Self::run_each) is there: then requests for single rows, and for
    /// partitions, that wait for a connection share statements.
    const RUNS_EACH: bool = false;

    /// A driver for the server of a URL. Nothing is sent yet.
    ///
    /// # Errors
    /// `Invalid`, without secrets.
    fn new(url: &str) -> Stored<Self>;

    /// The URL without secrets.
    fn name(&self) -> &str;

    /// Sizes that the store takes.
    fn limits(&self) -> Limits;

    /// Connects and makes the session ours.
    fn open(&self) -> impl Future<Output = Result<Self::Connection, Fault>> + Send;

    /// Checks the way between this process and the server, once, before anything else. A driver
    /// without such a check keeps this default.
    ///
    /// # Errors
    /// `Refused`, if the server has no sessions.
    fn look(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = connection;
        async { Ok(()) }
    }

    /// Returns true if a connection can take a request, as far as this side knows. A connection
    /// with a half-done request cannot.
    fn is_usable(&self, connection: &Self::Connection) -> bool;

    /// Forgets prepared statements: the last request failed with [`Failure::Again`]. A driver
    /// without any keeps this default.
    fn forget_prepared(&self, connection: &mut Self::Connection) {
        let _ = connection;
    }

    /// Runs a request. `sent` becomes true when the server may have what changes something.
    fn run(
        &self,
        connection: &mut Self::Connection,
        table: &'static TableDecl,
        request: &Request<'_>,
        sent: &mut bool,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Runs requests in one statement. `sent` as for [`run`](Self::run).
    fn run_each(
        &self,
        connection: &mut Self::Connection,
        table: &'static TableDecl,
        each: &Each<'_>,
        sent: &mut bool,
    ) -> impl Future<Output = Result<EachAnswer, Failure>> + Send {
        let _ = (connection, table, each, sent);
        async { Err(Failure::Nothing(Fault::corrupt("this driver runs one request at a time"))) }
    }

    /// Makes missing tables of `tables`, safely while others do the same.
    fn ensure(
        &self,
        connection: &mut Self::Connection,
        tables: &[&'static TableDecl],
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Examines the server for an operator. A driver whose server says nothing keeps this default.
    fn examine(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Examination, Fault>> + Send {
        let _ = connection;
        async { Ok(Examination::default()) }
    }
}
