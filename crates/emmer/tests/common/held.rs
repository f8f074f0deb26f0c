//! A store that can be held: its requests then wait, as if the server did not answer.

use std::ops::RangeInclusive;
use std::sync::Arc;

use emmer::Timestamp;
use emmer::store::{BoxFuture, StoreError, SystemStore};
use emmer_store::contract::StoredRow;
use emmer_store::{CommitOutcome, Mutation, Row, TableDecl, Value};
use tokio::sync::watch;

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub struct HeldStore {
    inner: Arc<dyn SystemStore>,
    held: watch::Sender<bool>,
}

impl HeldStore {
    pub fn over(inner: &Arc<dyn SystemStore>) -> Arc<Self> {
        Arc::new(Self { inner: inner.clone(), held: watch::Sender::new(false) })
    }

    /// Lets requests wait, or go on.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    fn then<'a, T: Send + 'a>(&'a self, ask: impl FnOnce() -> Answer<'a, T> + Send + 'a) -> Answer<'a, T> {
        let mut held = self.held.subscribe();
        Box::pin(async move {
            let _ = held.wait_for(|held| !*held).await;
            ask().await
        })
    }
}

impl SystemStore for HeldStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> Answer<'a, ()> {
        self.then(move || self.inner.ensure_tables(tables))
    }

    fn read_partition<'a>(&'a self, table: &'static TableDecl, part: &'a str) -> Answer<'a, Vec<StoredRow>> {
        self.then(move || self.inner.read_partition(table, part))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> Answer<'a, Option<StoredRow>> {
        self.then(move || self.inner.read_row(table, partition, row_key))
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> Answer<'a, Vec<StoredRow>> {
        self.then(move || self.inner.scan(table, column, range, limit))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> Answer<'a, CommitOutcome> {
        self.then(move || self.inner.commit(table, partition, mutations))
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> Answer<'a, ()> {
        self.then(move || self.inner.touch(table, partition, row_key, column, value))
    }

    fn append<'a>(&'a self, table: &'static TableDecl, partition: &'a str, rows: Vec<Row>) -> Answer<'a, ()> {
        self.then(move || self.inner.append(table, partition, rows))
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Answer<'a, u64> {
        self.then(move || self.inner.delete_older_than(table, partition, column, cutoff))
    }
}
