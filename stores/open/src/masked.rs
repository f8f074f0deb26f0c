//! A store whose errors show no secret of its address, whatever its driver says.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::url::StoreUrl;
use emmer_store::{
    BoxFuture, CommitOutcome, Examination, Mutation, Result, Row, StoreError, StoreLimits,
    StoredRow, SystemStore, TableDecl, Value,
};

/// A store, and the address that it was opened by.
struct Masked {
    store: Arc<dyn SystemStore>,
    address: StoreUrl,
}

/// The store unchanged if its address has no secrets; otherwise a store that keeps them out of its
/// errors.
pub(crate) fn masked(store: Arc<dyn SystemStore>, address: StoreUrl) -> Arc<dyn SystemStore> {
    if address.has_secrets() { Arc::new(Masked { store, address }) } else { store }
}

/// An error without the secrets of the address.
pub(crate) fn without_secrets(address: &StoreUrl, error: StoreError) -> StoreError {
    let (store, detail) = (address.mask(&error.store), address.mask(&error.detail));
    StoreError { store, detail, ..error }
}

impl Masked {
    fn kept<'a, T>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async { request.await.map_err(|error| without_secrets(&self.address, error)) })
    }
}

impl SystemStore for Masked {
    fn describe(&self) -> String {
        self.address.mask(&self.store.describe())
    }

    fn request_timeout(&self) -> Option<Duration> {
        self.store.request_timeout()
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn keeps_in_memory(&self) -> bool {
        self.store.keeps_in_memory()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        self.kept(self.store.ensure_tables(tables))
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        self.kept(self.store.read_partition(table, partition))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        self.kept(self.store.read_row(table, partition, row_key))
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        self.kept(self.store.read_some(table, partition, from, limit))
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
        self.kept(self.store.scan(table, column, range, limit))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        self.kept(self.store.commit(table, partition, mutations))
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        self.kept(self.store.touch(table, partition, row_key, column, value))
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        self.kept(self.store.append(table, partition, rows))
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        self.kept(self.store.delete_older_than(table, partition, column, cutoff))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        self.kept(self.store.examine())
    }
}
