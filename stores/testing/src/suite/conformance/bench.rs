//! What the cases stand on: connections, a scratch table, and checks that fail a case without a
//! panic.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{CONNECTIONS, Factory};
use emmer_store::TABLES;
use emmer_store::contract::{
    CommitOutcome, Etag, Mutation, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
use emmer_store::table::{Column, ColumnType, Row, TableDecl, Value};

/// The table most cases use: a column of every type, one indexed, two volatile.
pub(super) static SCRATCH: TableDecl = TableDecl {
    name: "conformance",
    partition_key: "Part",
    row_key: "Id",
    columns: &[
        Column::new("Name", ColumnType::Text),
        Column::new("Number", ColumnType::Int).indexed(),
        Column::new("At", ColumnType::Time),
        Column::new("Beat", ColumnType::Time).volatile(),
        Column::new("Blob", ColumnType::Bytes),
        Column::new("Items", ColumnType::List),
        Column::new("Beats", ColumnType::Int).volatile(),
    ],
    schema_version: 1,
    one_moment: true,
};

/// The table of rows that no reader needs as of one moment.
pub(super) static LOOSE: TableDecl =
    TableDecl { name: "conformance_loose", one_moment: false, ..SCRATCH };

/// Finding of a case instead of what must hold.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(format!("{:?}: {error}", error.kind))
    }
}

/// Result of a case.
pub(super) type Case = Result<(), Failure>;

/// Fails the case unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::suite::conformance::bench::Failure(format!($($text)+)));
        }
    };
}

/// Fails the case unless both are equal.
macro_rules! same {
    ($found:expr, $wanted:expr, $what:expr) => {
        // A match, so that what the operands borrow from lives long enough.
        match (&$found, &$wanted) {
            (found, wanted) => {
                if found != wanted {
                    return Err($crate::suite::conformance::bench::Failure(format!(
                        "{}: found {found:?} instead of {wanted:?}",
                        $what
                    )));
                }
            }
        }
    };
}

pub(super) use {check, same};

/// The connections of one run.
pub(super) struct Bench {
    stores: Vec<Arc<dyn SystemStore>>,
}

impl Bench {
    /// Opens the connections and makes the tables.
    pub(super) async fn open(factory: &Factory<'_>) -> Result<Self, Failure> {
        let mut stores = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            stores.push(factory().await?);
        }
        let bench = Self { stores };
        bench.store(0).ensure_tables(&[&SCRATCH, &LOOSE]).await?;
        bench.store(0).ensure_tables(&TABLES).await?;
        Ok(bench)
    }

    /// Connection `i`, counted round and round.
    pub(super) fn store(&self, i: usize) -> &Arc<dyn SystemStore> {
        // There is at least one, `open` made them.
        &self.stores[i % CONNECTIONS]
    }

    /// One mutation or more in the scratch table, over connection 0.
    pub(super) async fn commit(
        &self,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Result<CommitOutcome, Failure> {
        Ok(self.store(0).commit(&SCRATCH, partition, mutations).await?)
    }

    /// Commits, which must happen.
    pub(super) async fn must_commit(
        &self,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Result<Vec<Option<Etag>>, Failure> {
        match self.commit(partition, mutations).await? {
            CommitOutcome::Committed(etags) => Ok(etags),
            other => Err(Failure(format!("a commit that must happen: {other:?}"))),
        }
    }

    /// The partition of the scratch table, over connection 1.
    pub(super) async fn rows(&self, partition: &str) -> Result<Vec<StoredRow>, Failure> {
        Ok(self.store(1).read_partition(&SCRATCH, partition).await?)
    }

    /// One row of the scratch table that must be there.
    pub(super) async fn row(&self, partition: &str, key: &str) -> Result<StoredRow, Failure> {
        let found = self.store(1).read_row(&SCRATCH, partition, key).await?;
        found.ok_or_else(|| Failure(format!("row {key:?} is not there")))
    }
}

/// A scratch row with a number.
pub(super) fn numbered(key: impl Into<String>, number: i64) -> Row {
    Row::new(key).with("Number", Value::Int(number))
}

/// The number of a scratch row.
pub(super) fn number(row: &StoredRow) -> Result<i64, Failure> {
    match row.row.get("Number") {
        Some(Value::Int(n)) => Ok(*n),
        other => Err(Failure(format!("Number of {:?} is {other:?}", row.row.key()))),
    }
}

/// Fails unless the operation was refused with an error of `kind` that names the store and the
/// operation.
pub(super) fn refused<T: fmt::Debug>(
    store: &Arc<dyn SystemStore>,
    kind: StoreErrorKind,
    found: Result<T, StoreError>,
) -> Case {
    let error = match found {
        Ok(done) => return Err(Failure(format!("done instead of refused as {kind:?}: {done:?}"))),
        Err(error) => error,
    };
    same!(error.kind, kind, "the kind of the error");
    same!(error.store, store.describe(), "the store the error names");
    check!(
        !error.operation.is_empty() && !error.detail.is_empty(),
        "an error without words: {error:?}"
    );
    Ok(())
}

/// Lets the other futures of a join run once.
pub(super) fn yield_now() -> impl Future<Output = ()> + Send {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 {
                return Poll::Ready(());
            }
            self.0 = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Yield(false)
}
