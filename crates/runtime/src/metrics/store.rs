//! The system store as the silo uses it, with each request counted.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_net::clock::Clock;
use emmer_store::{
    BoxFuture, CommitOutcome, Examination, Mutation, Result, Row, StoreLimits, StoredRow,
    SystemStore, TableDecl, Value,
};

use super::latency::{Histogram, Latency};

/// The operations of a store.
#[derive(Clone, Copy, Debug)]
enum Operation {
    EnsureTables,
    ReadPartition,
    ReadRow,
    ReadSome,
    Scan,
    Commit,
    Touch,
    Append,
    Delete,
}

/// Their names, in the same order.
const OPERATIONS: [&str; 9] = [
    "ensure_tables",
    "read_partition",
    "read_row",
    "read_some",
    "scan",
    "commit",
    "touch",
    "append",
    "delete_older_than",
];

/// The end of a request, to a store or to a state in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    Ok,
    /// Another writer wrote since it was read.
    Conflict,
    /// It may have happened.
    Unknown,
    Error,
}

/// Their names, in the same order.
pub(super) const OUTCOMES: [&str; 4] = ["ok", "conflict", "unknown", "error"];

/// The counts of the requests to a store.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    counts: [[AtomicU64; OUTCOMES.len()]; OPERATIONS.len()],
    took: [Histogram; OPERATIONS.len()],
}

impl StoreMetrics {
    fn note(&self, operation: Operation, ended: Ended, took: Duration) {
        self.counts[operation as usize][ended as usize].fetch_add(1, Ordering::Relaxed);
        self.took[operation as usize].record(took);
    }

    /// For each operation its name, the counts of its outcomes, and its durations.
    pub(crate) fn snapshot(
        &self,
    ) -> impl Iterator<Item = (&'static str, Vec<(&'static str, u64)>, Latency)> {
        OPERATIONS.iter().zip(&self.counts).zip(&self.took).map(|((name, counts), took)| {
            let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
            (*name, OUTCOMES.iter().copied().zip(counts).collect(), took.snapshot())
        })
    }
}

/// A store whose requests are counted.
pub(crate) struct Measured {
    store: Arc<dyn SystemStore>,
    metrics: Arc<StoreMetrics>,
    clock: Clock,
}

impl Measured {
    pub(crate) fn new(
        store: Arc<dyn SystemStore>,
        metrics: Arc<StoreMetrics>,
        clock: Clock,
    ) -> Self {
        Self { store, metrics, clock }
    }

    fn count<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        request: BoxFuture<'a, Result<T>>,
        ended: fn(&T) -> Ended,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let began = self.clock.mono();
            let result = request.await;
            let ended = result.as_ref().map_or(Ended::Error, ended);
            self.metrics.note(operation, ended, self.clock.mono().saturating_since(began));
            result
        })
    }
}

impl SystemStore for Measured {
    fn describe(&self) -> String {
        self.store.describe()
    }

    fn request_timeout(&self) -> Option<Duration> {
        self.store.request_timeout()
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        self.count(Operation::EnsureTables, self.store.ensure_tables(tables), |()| Ended::Ok)
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let request = self.store.read_partition(table, partition);
        self.count(Operation::ReadPartition, request, |_| Ended::Ok)
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        let request = self.store.read_row(table, partition, row_key);
        self.count(Operation::ReadRow, request, |_| Ended::Ok)
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let request = self.store.read_some(table, partition, from, limit);
        self.count(Operation::ReadSome, request, |_| Ended::Ok)
    }

    fn keeps_in_memory(&self) -> bool {
        self.store.keeps_in_memory()
    }

    fn answers_at_once(&self) -> bool {
        self.store.answers_at_once()
    }

    fn keeps_order(&self) -> bool {
        self.store.keeps_order()
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let request = self.store.scan(table, column, range, limit);
        self.count(Operation::Scan, request, |_| Ended::Ok)
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        let request = self.store.commit(table, partition, mutations);
        self.count(Operation::Commit, request, |outcome| match outcome {
            CommitOutcome::Committed(_) => Ended::Ok,
            CommitOutcome::Conflict(_) => Ended::Conflict,
            CommitOutcome::Unknown(_) => Ended::Unknown,
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
        let request = self.store.touch(table, partition, row_key, column, value);
        self.count(Operation::Touch, request, |()| Ended::Ok)
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        let request = self.store.append(table, partition, rows);
        self.count(Operation::Append, request, |()| Ended::Ok)
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        let request = self.store.delete_older_than(table, partition, column, cutoff);
        self.count(Operation::Delete, request, |_| Ended::Ok)
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        self.store.examine()
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::MemoryStore;
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_operation_and_outcome() {
        let metrics = Arc::new(StoreMetrics::default());
        let store = Measured::new(Arc::new(MemoryStore::new()), metrics.clone(), Clock::new());
        assert!(store.read_row(&SILO_INSTANCES, "p", "r").await.is_err(), "no table yet");
        store.ensure_tables(&[&SILO_INSTANCES]).await.unwrap();
        let missing = vec![Mutation::Delete { row_key: "r".to_owned(), etag: None }];
        let outcome = store.commit(&SILO_INSTANCES, "p", missing).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Conflict(0));
        let told: Vec<_> = metrics
            .snapshot()
            .flat_map(|(name, counts, took)| {
                let all: u64 = counts.iter().map(|(_, count)| count).sum();
                assert_eq!(took.samples(), all);
                counts.into_iter().filter(|(_, n)| *n > 0).map(move |(outcome, _)| (name, outcome))
            })
            .collect();
        assert_eq!(told, [("ensure_tables", "ok"), ("read_row", "error"), ("commit", "conflict")]);
    }
}
