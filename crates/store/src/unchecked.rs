//! The common part of every store on a server: a request is checked before anything is sent, and a
//! failure names the store and the operation. [`Unchecked`] is the rest.

use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use emmer_core::Timestamp;

use crate::contract::{
    BoxFuture, CommitOutcome, Mutation, Result, StoreErrorKind, StoredRow, SystemStore,
};
use crate::examine::Examination;
use crate::fault::{Failure, Fault};
use crate::limits::StoreLimits;
use crate::table::{Row, TableDecl, Value};
use crate::validate::{self, Violation};

/// The answer to a request that was checked.
pub type Answered<T, E = Fault> = std::result::Result<T, E>;

/// A store that is given requests which keep the rules of [`validate`], and that
/// answers with failures which name neither store nor operation. It is a [`SystemStore`], whose
/// words for each request are meant here too.
pub trait Unchecked: Send + Sync + 'static {
    /// See [`SystemStore::describe`].
    fn name(&self) -> &str;

    /// See [`SystemStore::request_timeout`].
    fn timeout(&self) -> Duration;

    /// See [`SystemStore::limits`].
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// See [`SystemStore::keeps_order`].
    fn keeps_order(&self) -> bool {
        true
    }

    /// See [`SystemStore::keeps_in_memory`].
    fn keeps_in_memory(&self) -> bool {
        false
    }

    /// See [`SystemStore::ensure_tables`].
    fn ensure(&self, tables: &[&'static TableDecl]) -> impl Future<Output = Answered<()>> + Send;

    /// See [`SystemStore::read_partition`].
    fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
    ) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;

    /// See [`SystemStore::read_row`].
    fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> impl Future<Output = Answered<Option<StoredRow>>> + Send;

    /// See [`SystemStore::read_some`]. The rows may come in any order.
    fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
    ) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;

    /// See [`SystemStore::scan`].
    fn scan(
        &self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> impl Future<Output = Answered<Vec<StoredRow>>> + Send;

    /// See [`SystemStore::commit`]. A commit whose outcome is not known is [`Failure::Broken`].
    fn commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> impl Future<Output = Answered<CommitOutcome, Failure>> + Send;

    /// See [`SystemStore::touch`]. Returns false if the row is not there.
    fn touch(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: Value,
    ) -> impl Future<Output = Answered<bool>> + Send;

    /// See [`SystemStore::append`].
    fn append(
        &self,
        table: &'static TableDecl,
        partition: &str,
        rows: Vec<Row>,
    ) -> impl Future<Output = Answered<()>> + Send;

    /// See [`SystemStore::delete_older_than`].
    fn delete_older_than(
        &self,
        table: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> impl Future<Output = Answered<u64>> + Send;

    /// See [`SystemStore::examine`].
    fn examine(&self) -> impl Future<Output = Answered<Examination>> + Send;
}

/// Does `work` if the request keeps the rules, and words its failure.
async fn checked<T>(
    store: &impl Unchecked,
    found: std::result::Result<(), Violation>,
    operation: impl Fn() -> String + Send,
    work: impl Future<Output = Answered<T>> + Send,
) -> Result<T> {
    found.map_err(|violation| violation.at(store.name(), operation()))?;
    work.await.map_err(|fault| fault.at(store.name(), operation()))
}

impl<S: Unchecked> SystemStore for S {
    fn describe(&self) -> String {
        self.name().to_owned()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(self.timeout())
    }

    fn limits(&self) -> StoreLimits {
        Unchecked::limits(self)
    }

    fn keeps_order(&self) -> bool {
        Unchecked::keeps_order(self)
    }

    fn keeps_in_memory(&self) -> bool {
        Unchecked::keeps_in_memory(self)
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        let names = || tables.iter().map(|decl| decl.name).collect::<Vec<_>>().join(", ");
        let found = tables.iter().try_for_each(|decl| validate::table(decl));
        let work = self.ensure(tables);
        Box::pin(checked(self, found, move || format!("ensure {}", names()), work))
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("read {}/{partition}", table.name);
        let work = Unchecked::read_partition(self, table, partition);
        Box::pin(checked(self, validate::partition_key(partition), operation, work))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        let operation = move || format!("read {}/{partition}/{row_key}", table.name);
        let found = validate::partition_key(partition).and_then(|()| validate::row_key(row_key));
        let work = Unchecked::read_row(self, table, partition, row_key);
        Box::pin(checked(self, found, operation, work))
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("sample {}/{partition}", table.name);
        let work = async move {
            let mut rows = Unchecked::read_some(self, table, partition, from, limit).await?;
            // As this program orders them.
            rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
            Ok(rows)
        };
        Box::pin(checked(self, validate::read_some(partition, from, limit), operation, work))
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let operation = move || format!("scan {} by {column}", table.name);
        let work = Unchecked::scan(self, table, column, range, limit);
        Box::pin(checked(self, validate::scan(table, column), operation, work))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        let operation = move || format!("commit {}/{partition}", table.name);
        let found = validate::commit(table, partition, &mutations);
        Box::pin(checked(self, found, operation, async move {
            match Unchecked::commit(self, table, partition, mutations).await {
                Ok(outcome) => Ok(outcome),
                Err(Failure::Nothing(fault)) => Err(fault),
                Err(Failure::Broken(fault)) => {
                    Ok(CommitOutcome::Unknown(fault.at(self.name(), operation())))
                }
            }
        }))
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
        Box::pin(checked(self, found, operation, async move {
            if Unchecked::touch(self, table, partition, row_key, column, value).await? {
                return Ok(());
            }
            Err(Fault::new(StoreErrorKind::NotFound, "the row is not there"))
        }))
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        let operation = move || format!("append {}/{partition}", table.name);
        let found = validate::append(table, partition, &rows);
        let work = Unchecked::append(self, table, partition, rows);
        Box::pin(checked(self, found, operation, work))
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
        let work = Unchecked::delete_older_than(self, table, partition, column, cutoff);
        Box::pin(checked(self, found, operation, work))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        let work = Unchecked::examine(self);
        Box::pin(checked(self, Ok(()), || "examine".to_owned(), work))
    }
}
