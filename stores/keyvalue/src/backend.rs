//! What a key-value server must be able to do to be a system store.

use std::future::Future;
use std::time::Duration;

use emmer_store::examine::Examination;
use emmer_store::{CommitOutcome, Mutation, Result, Row, StoreLimits, StoredRow, TableDecl, Value};
use tokio::time::Instant;

use crate::asked::{Old, Scan};
use crate::fault::{Failure, Fault};

/// A client of one kind of server: its transactions. [`KeyValue`](crate::KeyValue) makes a system
/// store of it, which checks every request before it comes here, knows that the table is there,
/// limits the time and words the failures.
///
/// Every operation ends by `deadline`, or a little later with a failure that says so. What does no
/// harm when it is done twice is done again when its connection broke; a commit is not.
pub trait Backend: Sized + Send + Sync + 'static {
    /// The most rows that [`append`](Self::append) is given at once.
    const APPEND_ROWS: usize;

    /// How long whoever lost a race for a row waits at most before it hears of it. The default is
    /// for servers to which a commit that loses is as much work as one that wins.
    const LOSER_WAITS: Duration = Duration::from_millis(400);

    /// Whether [`read_some`](Self::read_some) gives the very next rows from its key on.
    const KEEPS_ORDER: bool = true;

    /// Connects to the server of a URL, and makes sure that it serves and lets us in.
    ///
    /// # Errors
    /// Within five seconds, without secrets.
    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// The URL without secrets.
    fn name(&self) -> &str;

    /// How long an operation takes at most, connecting included.
    fn timeout(&self) -> Duration;

    /// How much the server takes at once.
    fn limits(&self) -> StoreLimits;

    /// Makes a table, unless there is one of its name.
    ///
    /// # Errors
    /// It cannot be made.
    fn make(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<(), Fault>> + Send;

    /// The declaration that the server keeps of a table of this name; none when there is no such
    /// table.
    ///
    /// # Errors
    /// The server does not answer.
    fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<Option<Vec<u8>>, Fault>> + Send;

    /// All rows of a partition at one moment, ordered by row key.
    ///
    /// # Errors
    /// The server does not answer, or a foreign writer was here.
    fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<Vec<StoredRow>, Fault>> + Send;

    /// One row, or none.
    ///
    /// # Errors
    /// As [`read_partition`](Self::read_partition).
    fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<Option<StoredRow>, Fault>> + Send;

    /// At most `limit` rows of a partition, in any order: the next ones from `from` on, and around,
    /// if the server keeps an order, else any. All of them when there are no more.
    ///
    /// # Errors
    /// As [`read_partition`](Self::read_partition).
    fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<Vec<StoredRow>, Fault>> + Send;

    /// The rows of all partitions that a scan asks for, ordered by partition, then row key.
    ///
    /// # Errors
    /// As [`read_partition`](Self::read_partition).
    fn scan(
        &self,
        table: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<Vec<StoredRow>, Fault>> + Send;

    /// Applies all mutations, at least one, or none of them.
    ///
    /// # Errors
    /// `Nothing` when none was applied, `Broken` when that is not known.
    fn commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<CommitOutcome, Failure>> + Send;

    /// Sets a volatile column of a row; whether the row is there.
    ///
    /// # Errors
    /// The server does not answer.
    fn touch(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: &Value,
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<bool, Fault>> + Send;

    /// Adds those of the rows that are not there.
    ///
    /// # Errors
    /// The server does not answer, or takes no row that large. Some of the rows may have been
    /// added.
    fn append(
        &self,
        table: &'static TableDecl,
        partition: &str,
        rows: &[Row],
        deadline: Instant,
    ) -> impl Future<Output = std::result::Result<(), Fault>> + Send;

    /// Deletes the rows of a partition that are old; how many. One that is touched or written
    /// meanwhile stays. Each request has the time of an operation: there may be many.
    ///
    /// # Errors
    /// The server does not answer. Some of the rows may have been deleted.
    fn clean_up(
        &self,
        table: &'static TableDecl,
        partition: &str,
        old: &Old,
    ) -> impl Future<Output = std::result::Result<u64, Fault>> + Send;

    /// What the server says about itself.
    ///
    /// # Errors
    /// It does not answer.
    fn examine(&self) -> impl Future<Output = std::result::Result<Examination, Fault>> + Send;
}
