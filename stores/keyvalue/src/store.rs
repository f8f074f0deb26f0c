//! The store itself, for any backend: requests checked, limited in time, handed on; answers and
//! failures in the contract's words.

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::away::{AWAY_PAUSE, is_worth_waiting};
use emmer_store::examine::Examination;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Contention, Mutation, Result, Row, StoreError, StoreErrorKind,
    StoreLimits, StoredRow, SystemStore, TableDecl, Value,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::asked::{Old, Scan, Touch};
use crate::backend::{At, Backend};
use crate::fault::{Failure, Fault};
use crate::known::Known;
use crate::marks::random;

/// A system store on a server that `B` talks to.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
pub struct KeyValue<B> {
    backend: B,
    known: Known,
    contention: Contention,
}

impl<B: Backend> fmt::Debug for KeyValue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyValue").field(&self.backend.name()).finish()
    }
}

impl<B: Backend> KeyValue<B> {
    /// Connects to the server of a URL.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a secret: `Invalid` for a URL that cannot be
    /// understood, `Unavailable` when nobody answers, `Refused` for wrong credentials or
    /// certificates.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let backend = loop {
            match B::connect(url).await {
                Err(error) if is_worth_waiting(error.kind, begun.elapsed(), Duration::MAX) => {
                    sleep(AWAY_PAUSE).await;
                }
                ended => break ended?,
            }
        };
        let contention = Contention::new(random()).waiting_at_most(B::LOSER_WAITS);
        Ok(Self { backend, known: Known::default(), contention })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.backend.timeout()
    }

    /// Looks whether the table is on the server, and in this shape.
    async fn look(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        let found = self.backend.shape(table, deadline).await?;
        self.known.check(table, found.as_deref())
    }

    async fn must_know(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if self.known.has(table) { Ok(()) } else { self.look(table, deadline).await }
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.backend.name(), operation()))
    }

    fn fault(&self, fault: Fault, operation: String) -> StoreError {
        fault.at(self.backend.name(), operation)
    }

    /// Does `work` on a table that is there, if the request keeps the rules; again while the server
    /// is away.
    async fn run<T, F: Future<Output = std::result::Result<T, Fault>>>(
        &self,
        table: &'static TableDecl,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
        work: impl Fn(Instant) -> F,
    ) -> Result<T> {
        self.checked(found, &operation)?;
        let (begun, deadline) = (Instant::now(), self.deadline());
        loop {
            let done = match self.must_know(table, deadline).await {
                Ok(()) => work(deadline).await,
                Err(fault) => Err(fault),
            };
            match done {
                Err(fault) if waits(&fault, begun, deadline) => sleep(AWAY_PAUSE).await,
                done => return done.map_err(|fault| self.fault(fault, operation())),
            }
        }
    }

    async fn run_commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> std::result::Result<CommitOutcome, Failure> {
        self.must_know(table, deadline).await?;
        if mutations.is_empty() {
            return Ok(CommitOutcome::Committed(Vec::new()));
        }
        self.backend.commit(At { table, partition, deadline }, mutations).await
    }

    async fn make(&self, table: &'static TableDecl) -> std::result::Result<(), Fault> {
        let (begun, deadline) = (Instant::now(), self.deadline());
        loop {
            let made = match self.backend.make(table, deadline).await {
                // Some services take longer to make a table than an operation has.
                Ok(()) => self.look(table, self.deadline()).await,
                Err(fault) => Err(fault),
            };
            match made {
                Err(fault) if waits(&fault, begun, deadline) => sleep(AWAY_PAUSE).await,
                made => return made,
            }
        }
    }
}

/// Whether an operation that failed so is tried again.
fn waits(fault: &Fault, begun: Instant, deadline: Instant) -> bool {
    is_worth_waiting(
        fault.kind,
        begun.elapsed(),
        deadline.saturating_duration_since(Instant::now()),
    )
}

impl<B: Backend> SystemStore for KeyValue<B> {
    fn describe(&self) -> String {
        self.backend.name().to_owned()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(self.backend.timeout())
    }

    fn limits(&self) -> StoreLimits {
        self.backend.limits()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for table in tables {
                let operation = || format!("ensure {}", table.name);
                self.checked(validate::table(table), operation)?;
                self.make(table).await.map_err(|fault| self.fault(fault, operation()))?;
            }
            Ok(())
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("read {}/{partition}", table.name);
        let found = validate::partition_key(partition);
        Box::pin(self.run(table, found, operation, move |deadline| async move {
            let rows = self.backend.read_partition(At { table, partition, deadline }).await?;
            if rows.is_empty() {
                // A server that lost its data must not look like an empty table.
                self.look(table, deadline).await?;
            }
            Ok(rows)
        }))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        let operation = move || format!("read {}/{partition}/{row_key}", table.name);
        let found = validate::partition_key(partition).and_then(|()| validate::row_key(row_key));
        Box::pin(self.run(table, found, operation, move |deadline| async move {
            let row = self.backend.read_row(At { table, partition, deadline }, row_key).await?;
            if row.is_none() {
                self.look(table, deadline).await?;
            }
            Ok(row)
        }))
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("sample {}/{partition}", table.name);
        let found = validate::read_some(partition, from, limit);
        Box::pin(self.run(table, found, operation, move |deadline| async move {
            let mut rows =
                self.backend.read_some(At { table, partition, deadline }, from, limit).await?;
            if rows.is_empty() {
                self.look(table, deadline).await?;
            }
            rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
            Ok(rows)
        }))
    }

    fn keeps_order(&self) -> bool {
        B::KEEPS_ORDER
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("scan {} by {column}", table.name);
        let scan = Scan { column, range, limit };
        Box::pin(async move {
            let work = |deadline| self.backend.scan(table, &scan, deadline);
            self.run(table, validate::scan(table, column), operation, work).await
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            let operation = || format!("commit {}/{partition}", table.name);
            self.checked(validate::commit(table, partition, &mutations), operation)?;
            let (begun, deadline) = (Instant::now(), self.deadline());
            let outcome = loop {
                match self.run_commit(table, partition, &mutations, deadline).await {
                    Ok(outcome) => break outcome,
                    Err(Failure::Nothing(fault)) if waits(&fault, begun, deadline) => {
                        sleep(AWAY_PAUSE).await;
                    }
                    Err(Failure::Nothing(fault)) => return Err(self.fault(fault, operation())),
                    Err(Failure::Broken(fault)) => {
                        break CommitOutcome::Unknown(self.fault(fault, operation()));
                    }
                }
            };
            let wait =
                self.contention.wait(table.name, partition, &mutations, &outcome, begun.elapsed());
            if !wait.is_zero() {
                sleep_until(deadline.min(Instant::now() + wait)).await;
            }
            Ok(outcome)
        })
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        let operation = move || format!("touch {column} of {}/{partition}/{row_key}", table.name);
        let found = validate::touch(table, partition, row_key, column, &value);
        Box::pin(async move {
            let touch = Touch { row_key, column, value: &value };
            let work = |deadline| async move {
                if self.backend.touch(At { table, partition, deadline }, touch).await? {
                    return Ok(());
                }
                Err(Fault::new(StoreErrorKind::NotFound, "the row is not there"))
            };
            self.run(table, found, operation, work).await
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        let operation = move || format!("append {}/{partition}", table.name);
        let found = validate::append(table, partition, &rows);
        Box::pin(async move {
            let rows = &rows;
            let work = |_| async move {
                for part in rows.chunks(B::APPEND_ROWS.max(1)) {
                    let deadline = self.deadline();
                    self.backend.append(At { table, partition, deadline }, part).await?;
                }
                Ok(())
            };
            self.run(table, found, operation, work).await
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        let operation = move || format!("clean up {}/{partition}", table.name);
        let found = validate::delete_older_than(table, partition, column);
        Box::pin(self.run(table, found, operation, move |deadline| async move {
            let old = Old::new(table, column, cutoff);
            self.backend.clean_up(At { table, partition, deadline }, &old).await
        }))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async move {
            self.backend.examine().await.map_err(|fault| self.fault(fault, "examine".to_owned()))
        })
    }
}
