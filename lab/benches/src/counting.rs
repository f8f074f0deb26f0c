//! A store that counts the operations on each of its tables.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use emmer::store::{BoxFuture, MemoryStore, SystemStore};
use emmer::tables::Timestamp;
use emmer_store::{CommitOutcome, Mutation, Result, Row, StoredRow, TableDecl, Value};

use crate::lock;

/// A store in memory, and how often each table was asked.
#[derive(Debug, Default)]
pub struct CountingStore {
    inner: MemoryStore,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl CountingStore {
    /// Operations so far, by table.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    fn count(&self, table: &'static TableDecl) {
        *lock(&self.counts).entry(table.name).or_default() += 1;
    }
}

impl SystemStore for CountingStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn request_timeout(&self) -> Option<Duration> {
        self.inner.request_timeout()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        self.inner.ensure_tables(tables)
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        self.count(table);
        self.inner.read_partition(table, partition)
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        self.count(table);
        self.inner.read_row(table, partition, row_key)
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        self.count(table);
        self.inner.read_some(table, partition, from, limit)
    }

    fn keeps_in_memory(&self) -> bool {
        self.inner.keeps_in_memory()
    }

    fn answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        self.count(table);
        self.inner.scan(table, column, range, limit)
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        self.count(table);
        self.inner.commit(table, partition, mutations)
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        self.count(table);
        self.inner.touch(table, partition, row_key, column, value)
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        self.count(table);
        self.inner.append(table, partition, rows)
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        self.count(table);
        self.inner.delete_older_than(table, partition, column, cutoff)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::grains::StoredCell;
    use crate::silos;

    /// The goal: no store operation on a warm call.
    #[tokio::test]
    async fn a_warm_call_asks_the_store_nothing() {
        let store = Arc::new(CountingStore::default());
        let silo = silos::alone_on(store.clone()).await.unwrap();
        let cell = silo.grain::<dyn StoredCell>(1u64);
        let states = emmer_store::state::GRAIN_STATE.name;
        assert_eq!(store.counts().get(states), None);
        cell.bump(0).await.unwrap();
        assert_eq!(store.counts().get(states), Some(&1), "the activation reads the state");
        let before = store.counts();
        for n in 0..1_000 {
            cell.bump(n).await.unwrap();
        }
        let after = store.counts();
        assert_eq!(after.get(states), Some(&1));
        // Membership works by itself: its table is asked by the time, not by the calls.
        let others: u64 =
            after.iter().map(|(table, count)| count - before.get(table).unwrap_or(&0)).sum();
        assert!(others < 100, "{before:?} {after:?}");
    }
}
