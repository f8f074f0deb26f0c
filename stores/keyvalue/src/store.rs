//! The store itself, for any backend: limited in time, asked again while the server is away.

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::away::{AWAY_PAUSE, is_worth_waiting};
use emmer_store::examine::Examination;
use emmer_store::{
    Answered, CommitOutcome, Contention, Failure, Fault, Mutation, Result, Row, StoreLimits,
    StoredRow, TableDecl, Unchecked, Value,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::asked::{Old, Scan, Touch};
use crate::backend::{At, Backend};
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
        f.debug_tuple("KeyValue").field(&self.backend.address().name).finish()
    }
}

impl<B: Backend> KeyValue<B> {
    /// Connects to the server of a URL.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a secret: `Invalid` for a URL that cannot be
    /// understood, `Unavailable` without an answer, `Refused` for wrong credentials or
    /// certificates.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let mut backend = B::new(url)?;
        while let Err(fault) = backend.probe(Instant::now() + backend.address().timeout).await {
            if !is_worth_waiting(fault.kind, begun.elapsed(), Duration::MAX) {
                return Err(fault.at(&backend.address().name, "open"));
            }
            sleep(AWAY_PAUSE).await;
            backend = B::new(url)?;
        }
        let contention = Contention::new(random()).waiting_at_most(B::LOSER_WAITS);
        Ok(Self { backend, known: Known::default(), contention })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.backend.address().timeout
    }

    /// Looks whether the table is on the server, and in this shape.
    async fn look(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let found = self.backend.shape(table, deadline).await?;
        self.known.check(table, found.as_deref())
    }

    async fn must_know(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        if self.known.has(table) { Ok(()) } else { self.look(table, deadline).await }
    }

    /// Does `work` on a table that is there; again while the server is away.
    async fn run<T, F: Future<Output = Answered<T>>>(
        &self,
        table: &'static TableDecl,
        work: impl Fn(Instant) -> F,
    ) -> Answered<T> {
        let (begun, deadline) = (Instant::now(), self.deadline());
        loop {
            let done = match self.must_know(table, deadline).await {
                Ok(()) => work(deadline).await,
                Err(fault) => Err(fault),
            };
            match done {
                Err(fault) if waits(&fault, begun, deadline) => sleep(AWAY_PAUSE).await,
                done => return done,
            }
        }
    }

    async fn run_commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> Answered<CommitOutcome, Failure> {
        self.must_know(table, deadline).await?;
        if mutations.is_empty() {
            return Ok(CommitOutcome::Committed(Vec::new()));
        }
        self.backend.commit(At { table, partition, deadline }, mutations).await
    }

    async fn make(&self, table: &'static TableDecl) -> Answered<()> {
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

/// Returns true if an operation that failed so is tried again.
fn waits(fault: &Fault, begun: Instant, deadline: Instant) -> bool {
    is_worth_waiting(
        fault.kind,
        begun.elapsed(),
        deadline.saturating_duration_since(Instant::now()),
    )
}

impl<B: Backend> Unchecked for KeyValue<B> {
    fn name(&self) -> &str {
        &self.backend.address().name
    }

    fn timeout(&self) -> Duration {
        self.backend.address().timeout
    }

    fn limits(&self) -> StoreLimits {
        self.backend.limits()
    }

    fn keeps_order(&self) -> bool {
        B::KEEPS_ORDER
    }

    fn keeps_in_memory(&self) -> bool {
        B::IN_MEMORY
    }

    async fn ensure(&self, tables: &[&'static TableDecl]) -> Answered<()> {
        for table in tables {
            self.make(table).await?;
        }
        Ok(())
    }

    async fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
    ) -> Answered<Vec<StoredRow>> {
        let work = |deadline| async move {
            let rows = self.backend.read_partition(At { table, partition, deadline }).await?;
            if rows.is_empty() {
                // A server that lost its data must not look like an empty table.
                self.look(table, deadline).await?;
            }
            Ok(rows)
        };
        self.run(table, work).await
    }

    async fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> Answered<Option<StoredRow>> {
        let work = |deadline| async move {
            let row = self.backend.read_row(At { table, partition, deadline }, row_key).await?;
            if row.is_none() {
                self.look(table, deadline).await?;
            }
            Ok(row)
        };
        self.run(table, work).await
    }

    async fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        let work = |deadline| async move {
            let at = At { table, partition, deadline };
            let rows = self.backend.read_some(at, from, limit).await?;
            if rows.is_empty() {
                self.look(table, deadline).await?;
            }
            Ok(rows)
        };
        self.run(table, work).await
    }

    async fn scan(
        &self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        let scan = Scan { column, range, limit };
        self.run(table, |deadline| self.backend.scan(table, &scan, deadline)).await
    }

    async fn commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Answered<CommitOutcome, Failure> {
        let (begun, deadline) = (Instant::now(), self.deadline());
        let outcome = loop {
            match self.run_commit(table, partition, &mutations, deadline).await {
                Err(Failure::Nothing(fault)) if waits(&fault, begun, deadline) => {
                    sleep(AWAY_PAUSE).await;
                }
                ended => break ended?,
            }
        };
        let wait =
            self.contention.wait(table.name, partition, &mutations, &outcome, begun.elapsed());
        if !wait.is_zero() {
            sleep_until(deadline.min(Instant::now() + wait)).await;
        }
        Ok(outcome)
    }

    async fn touch(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: Value,
    ) -> Answered<bool> {
        let touch = Touch { row_key, column, value: &value };
        let work = |deadline| self.backend.touch(At { table, partition, deadline }, touch);
        self.run(table, work).await
    }

    async fn append(
        &self,
        table: &'static TableDecl,
        partition: &str,
        rows: Vec<Row>,
    ) -> Answered<()> {
        let rows = &rows;
        let work = |_| async move {
            for part in rows.chunks(B::APPEND_ROWS.max(1)) {
                let deadline = self.deadline();
                self.backend.append(At { table, partition, deadline }, part).await?;
            }
            Ok(())
        };
        self.run(table, work).await
    }

    async fn delete_older_than(
        &self,
        table: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Answered<u64> {
        let old = &Old::new(table, column, cutoff);
        let work = |deadline| self.backend.clean_up(At { table, partition, deadline }, old);
        self.run(table, work).await
    }

    async fn examine(&self) -> Answered<Examination> {
        self.backend.examine().await
    }
}
