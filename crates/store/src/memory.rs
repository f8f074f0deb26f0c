//! The store inside the process: [`MemoryTables`] is its synchronous heart, for simulations in
//! virtual time; [`MemoryStore`] is a [`SystemStore`] around it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmer_core::Timestamp;

use crate::contract::{
    BoxFuture, CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow,
    SystemStore,
};
use crate::table::{Row, TableDecl, Value};
use crate::validate;

/// Name of this store.
const STORE: &str = "memory://";

type Partition = BTreeMap<String, StoredRow>;

#[derive(Clone, Debug)]
struct Table {
    decl: &'static TableDecl,
    partitions: BTreeMap<String, Partition>,
}

/// All tables of one store as plain data: every operation of the contract as a plain method.
/// Deterministic: etags come from one counter, every order is by key. A clone is an independent
/// copy.
#[derive(Clone, Debug, Default)]
pub struct MemoryTables {
    tables: BTreeMap<&'static str, Table>,
    last_etag: u64,
}

impl MemoryTables {
    /// No tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`SystemStore::ensure_tables`].
    ///
    /// # Errors
    /// `Invalid` for a declaration against the rules, `Corrupt` when a table is there with another
    /// shape.
    pub fn ensure_tables(&mut self, tables: &[&'static TableDecl]) -> Result<()> {
        for decl in tables {
            let operation = || format!("ensure {}", decl.name);
            validate::table(decl).map_err(|v| v.at(STORE, operation()))?;
            let empty = || Table { decl, partitions: BTreeMap::new() };
            if self.tables.entry(decl.name).or_insert_with(empty).decl != *decl {
                let detail = "the table is there with another shape";
                return Err(StoreError::new(StoreErrorKind::Corrupt, STORE, operation(), detail));
            }
        }
        Ok(())
    }

    /// See [`SystemStore::read_partition`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for an illegal key.
    pub fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
    ) -> Result<Vec<StoredRow>> {
        let operation = || format!("read {}/{partition}", table.name);
        validate::partition_key(partition).map_err(|v| v.at(STORE, operation()))?;
        let found = self.table(table, operation)?.partitions.get(partition);
        Ok(found.map(|rows| rows.values().cloned().collect()).unwrap_or_default())
    }

    /// See [`SystemStore::read_row`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for an illegal key.
    pub fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> Result<Option<StoredRow>> {
        let operation = || format!("read {}/{partition}/{row_key}", table.name);
        validate::partition_key(partition).map_err(|v| v.at(STORE, operation()))?;
        validate::row_key(row_key).map_err(|v| v.at(STORE, operation()))?;
        let found = self.table(table, operation)?.partitions.get(partition);
        Ok(found.and_then(|rows| rows.get(row_key)).cloned())
    }

    /// See [`SystemStore::read_some`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for an illegal key or too many rows.
    pub fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
    ) -> Result<Vec<StoredRow>> {
        let operation = || format!("sample {}/{partition}", table.name);
        validate::read_some(partition, from, limit).map_err(|v| v.at(STORE, operation()))?;
        let Some(rows) = self.table(table, operation)?.partitions.get(partition) else {
            return Ok(Vec::new());
        };
        let from = from.to_owned();
        let (behind, before) = (rows.range(from.clone()..), rows.range(..from));
        let around = behind.chain(before);
        let mut found: Vec<StoredRow> = around.take(limit).map(|(_, row)| row.clone()).collect();
        found.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
        Ok(found)
    }

    /// See [`SystemStore::scan`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for a column without an index.
    pub fn scan(
        &self,
        table: &'static TableDecl,
        column: &'static str,
        range: &RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Vec<StoredRow>> {
        let operation = || format!("scan {} by {column}", table.name);
        validate::scan(table, column).map_err(|v| v.at(STORE, operation()))?;
        let (start, end) = (*range.start(), *range.end());
        let inside =
            |n: i64| if start <= end { range.contains(&n) } else { n >= start || n <= end };
        let rows = self.table(table, operation)?.partitions.values().flat_map(BTreeMap::values);
        let found = rows.filter(|r| matches!(r.row.get(column), Some(Value::Int(n)) if inside(*n)));
        Ok(found.take(limit).cloned().collect())
    }

    /// See [`SystemStore::commit`]. Never [`CommitOutcome::Unknown`]: a simulation adds that
    /// outside.
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for mutations against the rules.
    pub fn commit(
        &mut self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Result<CommitOutcome> {
        let operation = || format!("commit {}/{partition}", table.name);
        validate::commit(table, partition, &mutations).map_err(|v| v.at(STORE, operation()))?;
        let etag: Etag = (self.last_etag + 1).to_string().into();
        let stored = self.table_mut(table, operation)?;
        let rows = stored.partitions.entry(partition.to_owned()).or_default();
        let outcome = match mutations
            .iter()
            .position(|m| !m.holds(rows.get(m.row_key()).map(|row| &row.etag)))
        {
            Some(at) => CommitOutcome::Conflict(at),
            None => {
                let etags = mutations.into_iter().map(|m| apply(table, rows, m, &etag)).collect();
                CommitOutcome::Committed(etags)
            }
        };
        if rows.is_empty() {
            stored.partitions.remove(partition);
        }
        if matches!(outcome, CommitOutcome::Committed(_)) {
            self.last_etag += 1;
        }
        Ok(outcome)
    }

    /// See [`SystemStore::touch`].
    ///
    /// # Errors
    /// `NotFound` when the row or the table is not there, `Invalid` for a column that is not
    /// volatile.
    pub fn touch(
        &mut self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: Value,
    ) -> Result<()> {
        let operation = || format!("touch {} of {}/{partition}/{row_key}", column, table.name);
        validate::touch(table, partition, row_key, column, &value)
            .map_err(|v| v.at(STORE, operation()))?;
        let stored = self.table_mut(table, operation)?;
        match stored.partitions.get_mut(partition).and_then(|rows| rows.get_mut(row_key)) {
            Some(found) => {
                found.row.set(column, value);
                Ok(())
            }
            None => Err(StoreError::new(
                StoreErrorKind::NotFound,
                STORE,
                operation(),
                "the row is not there",
            )),
        }
    }

    /// See [`SystemStore::append`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for rows against the rules.
    pub fn append(
        &mut self,
        table: &'static TableDecl,
        partition: &str,
        rows: Vec<Row>,
    ) -> Result<()> {
        let operation = || format!("append {}/{partition}", table.name);
        validate::append(table, partition, &rows).map_err(|v| v.at(STORE, operation()))?;
        let etag: Etag = (self.last_etag + 1).to_string().into();
        let stored = self.table_mut(table, operation)?;
        if !rows.is_empty() {
            let old = stored.partitions.entry(partition.to_owned()).or_default();
            for row in rows {
                old.entry(row.key().to_owned())
                    .or_insert_with(|| StoredRow { row, etag: etag.clone() });
            }
            self.last_etag += 1;
        }
        Ok(())
    }

    /// See [`SystemStore::delete_older_than`].
    ///
    /// # Errors
    /// `NotFound` when the table is not there, `Invalid` for a column that holds no time.
    pub fn delete_older_than(
        &mut self,
        table: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Result<u64> {
        let operation = || format!("clean up {}/{partition}", table.name);
        validate::delete_older_than(table, partition, column)
            .map_err(|v| v.at(STORE, operation()))?;
        let stored = self.table_mut(table, operation)?;
        let Some(rows) = stored.partitions.get_mut(partition) else { return Ok(0) };
        let before = rows.len();
        rows.retain(|_, r| !matches!(r.row.get(column), Some(Value::Time(at)) if *at < cutoff));
        let gone = before - rows.len();
        if rows.is_empty() {
            stored.partitions.remove(partition);
        }
        Ok(gone as u64)
    }

    fn table(&self, decl: &'static TableDecl, operation: impl Fn() -> String) -> Result<&Table> {
        self.tables.get(decl.name).ok_or_else(|| missing(operation()))
    }

    fn table_mut(
        &mut self,
        decl: &'static TableDecl,
        operation: impl Fn() -> String,
    ) -> Result<&mut Table> {
        self.tables.get_mut(decl.name).ok_or_else(|| missing(operation()))
    }
}

fn missing(operation: String) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        STORE,
        operation,
        "the table is not there: ensure it first",
    )
}

/// Does what `mutation` says; its condition holds.
fn apply(decl: &TableDecl, rows: &mut Partition, mutation: Mutation, etag: &Etag) -> Option<Etag> {
    match mutation {
        Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
            let row = match rows.get(row.key()) {
                None => row,
                Some(old) => keep_volatile(decl, &old.row, &row),
            };
            rows.insert(row.key().to_owned(), StoredRow { row, etag: etag.clone() });
            Some(etag.clone())
        }
        Mutation::Delete { row_key, .. } => {
            rows.remove(&row_key);
            None
        }
        Mutation::Check { .. } => None,
    }
}

/// `new` with the volatile columns of `old`.
fn keep_volatile(decl: &TableDecl, old: &Row, new: &Row) -> Row {
    let mut row = Row::new(new.key());
    for column in decl.columns {
        let source = if column.volatile { old } else { new };
        if let Some(value) = source.get(column.name) {
            row.set(column.name, value.clone());
        }
    }
    row
}

/// A store inside this process. Clones share their tables; everything is gone when the last one is
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<MemoryTables>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryTables> {
        // No method of MemoryTables leaves half a change behind when it panics: a poisoned lock is
        // whole.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SystemStore for MemoryStore {
    fn describe(&self) -> String {
        STORE.to_owned()
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.lock().ensure_tables(tables) })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move { self.lock().read_partition(table, partition) })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move { self.lock().read_row(table, partition, row_key) })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move { self.lock().read_some(table, partition, from, limit) })
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move { self.lock().scan(table, column, &range, limit) })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move { self.lock().commit(table, partition, mutations) })
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.lock().touch(table, partition, row_key, column, value) })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.lock().append(table, partition, rows) })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { self.lock().delete_older_than(table, partition, column, cutoff) })
    }
}
