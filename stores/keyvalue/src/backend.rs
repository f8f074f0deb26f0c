//! The abilities of a key-value server that is to be a system store, in parts: each is implemented
//! where its subject is.

use std::future::Future;
use std::time::Duration;

use emmer_store::examine::Examination;
use emmer_store::{
    Address, Answered, CommitOutcome, Failure, Mutation, Result, Row, StoreLimits, StoredRow,
    TableDecl,
};
use tokio::time::Instant;

use crate::asked::{Old, Scan, Touch};

/// The partition of an operation, and the time by which the operation must end. It ends then, or a
/// little later, with a failure that says so.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The table.
    pub table: &'static TableDecl,
    /// The partition's key.
    pub partition: &'a str,
    /// The end.
    pub deadline: Instant,
}

/// A client of one kind of server: its transactions. [`KeyValue`](crate::KeyValue) makes a system
/// store of it, which checks every request, knows that the table exists, limits the time and words
/// the failures.
///
/// A request that does no harm when it is done twice is sent again when its connection broke; a
/// commit is not.
pub trait Backend: Tables + Reads + Commits + Writes + Sized + Send + Sync + 'static {
    /// The most rows that [`append`](Writes::append) is given at once.
    const APPEND_ROWS: usize;

    /// Maximum time after which a writer learns that it has lost a race for a row. The default is
    /// for servers to which a losing commit is as much work as a winning one.
    const LOSER_WAITS: Duration = Duration::from_millis(400);

    /// True if [`read_some`](Reads::read_some) gives the very next rows from its key on.
    const KEEPS_ORDER: bool = true;

    /// True if the server holds every row in memory.
    const IN_MEMORY: bool = false;

    /// A client of the server of a URL. Nothing is sent yet.
    ///
    /// # Errors
    /// `Invalid`, without secrets.
    fn new(url: &str) -> Result<Self>;

    /// Makes sure that the server serves, and lets us in.
    ///
    /// # Errors
    /// By the deadline.
    fn probe(&self, deadline: Instant) -> impl Future<Output = Answered<()>> + Send;

    /// The address of the server.
    fn address(&self) -> &Address;

    /// Limits of the server.
    fn limits(&self) -> StoreLimits;

    /// Report of the server about itself.
    ///
    /// # Errors
    /// It does not answer.
    fn examine(&self) -> impl Future<Output = Answered<Examination>> + Send;
}

/// The tables of a server.
pub trait Tables {
    /// Makes a table, unless there is one of its name.
    ///
    /// # Errors
    /// It cannot be made.
    fn make(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> impl Future<Output = Answered<()>> + Send;

    /// The declaration that the server keeps of a table of this name; none when there is no such
    /// table.
    ///
    /// # Errors
    /// The server does not answer.
    fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> impl Future<Output = Answered<Option<Vec<u8>>>> + Send;
}

/// Reads. They fail if the server does not answer, or a foreign writer was here.
pub trait Reads {
    /// All rows of a partition at one moment, ordered by row key.
    ///
    /// # Errors
    /// See [`Reads`].
    fn read_partition(&self, at: At<'_>) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;

    /// One row, or none.
    ///
    /// # Errors
    /// See [`Reads`].
    fn read_row(
        &self,
        at: At<'_>,
        row_key: &str,
    ) -> impl Future<Output = Answered<Option<StoredRow>>> + Send;

    /// At most `limit` rows of a partition, in any order: from `from` on, and around, if the server
    /// keeps an order, otherwise any rows. All of them when there are no more.
    ///
    /// # Errors
    /// See [`Reads`].
    fn read_some(
        &self,
        at: At<'_>,
        from: &str,
        limit: usize,
    ) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;

    /// The rows of all partitions that a scan asks for, ordered by partition, then row key.
    ///
    /// # Errors
    /// See [`Reads`].
    fn scan(
        &self,
        table: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;
}

/// Commits.
pub trait Commits {
    /// Applies all mutations, at least one, or none.
    ///
    /// # Errors
    /// `Nothing` when none was applied, `Broken` when that is not known.
    fn commit(
        &self,
        at: At<'_>,
        mutations: &[Mutation],
    ) -> impl Future<Output = Answered<CommitOutcome, Failure>> + Send;
}

/// Writes without a condition.
pub trait Writes {
    /// Sets a volatile column of a row; whether the row is there.
    ///
    /// # Errors
    /// The server does not answer.
    fn touch(&self, at: At<'_>, touch: Touch<'_>) -> impl Future<Output = Answered<bool>> + Send;

    /// Adds those of the rows that are not there.
    ///
    /// # Errors
    /// The server does not answer, or takes no row that large. Some of the rows may have been
    /// added.
    fn append(&self, at: At<'_>, rows: &[Row]) -> impl Future<Output = Answered<()>> + Send;

    /// Deletes the rows of a partition that are old; how many. One that is touched or written
    /// meanwhile stays. Each request has the time of an operation: there may be many.
    ///
    /// # Errors
    /// The server does not answer. Some of the rows may have been deleted.
    fn clean_up(&self, at: At<'_>, old: &Old) -> impl Future<Output = Answered<u64>> + Send;
}
