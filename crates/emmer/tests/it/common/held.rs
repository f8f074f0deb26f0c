//! A store that can be held: its requests then wait, as if the server did not answer.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use emmer::store::{BoxFuture, StoreError, SystemStore};
use emmer::tables::Timestamp;
use emmer_store::StoreErrorKind;
use emmer_store::contract::StoredRow;
use emmer_store::{CommitOutcome, Mutation, Row, TableDecl, Value};
use tokio::sync::watch;

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub struct HeldStore {
    inner: Arc<dyn SystemStore>,
    held: watch::Sender<bool>,
    patience: Option<Duration>,
    /// Commits of these partitions are refused: what begins like this.
    refused: Mutex<Option<String>>,
    /// A column of a table, and what readers find there whatever was written.
    bent: Mutex<Option<(&'static str, &'static str, Value)>>,
}

impl HeldStore {
    pub fn over(inner: &Arc<dyn SystemStore>) -> Arc<Self> {
        Arc::new(Self::new(inner, None))
    }

    fn new(inner: &Arc<dyn SystemStore>, patience: Option<Duration>) -> Self {
        Self {
            inner: inner.clone(),
            held: watch::Sender::new(false),
            patience,
            refused: Mutex::default(),
            bent: Mutex::default(),
        }
    }

    /// A store that says that its requests may take so long.
    pub fn patient(inner: &Arc<dyn SystemStore>, patience: Duration) -> Arc<dyn SystemStore> {
        Arc::new(Self::new(inner, Some(patience)))
    }

    /// Lets requests wait, or continue.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Refuses every commit to a table whose name begins like this, or none.
    pub fn refuse(&self, table: Option<&str>) {
        *self.refused.lock().unwrap() = table.map(ToOwned::to_owned);
    }

    /// Lets readers of a table find this value in a column, or the true one.
    pub fn bend(&self, bent: Option<(&'static str, &'static str, Value)>) {
        *self.bent.lock().unwrap() = bent;
    }

    fn read<'a, T>(
        &'a self,
        table: &'static TableDecl,
        ask: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T>
    where
        T: AsMut<[StoredRow]> + Send + 'a,
    {
        let answer = self.then(ask);
        Box::pin(async move {
            let mut rows = answer.await?;
            let bent = self.bent.lock().unwrap().clone();
            if let Some((_, column, value)) = bent.filter(|(name, ..)| *name == table.name) {
                for stored in rows.as_mut() {
                    stored.row.set(column, value.clone());
                }
            }
            Ok(rows)
        })
    }

    fn refuses(&self, table: &TableDecl) -> bool {
        self.refused.lock().unwrap().as_ref().is_some_and(|refused| table.name.starts_with(refused))
    }

    fn then<'a, T: Send + 'a>(
        &'a self,
        ask: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
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

    fn request_timeout(&self) -> Option<Duration> {
        self.patience
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> Answer<'a, ()> {
        self.then(move || self.inner.ensure_tables(tables))
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        part: &'a str,
    ) -> Answer<'a, Vec<StoredRow>> {
        self.read(table, move || self.inner.read_partition(table, part))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> Answer<'a, Option<StoredRow>> {
        let answer = self.read(table, move || {
            Box::pin(async move {
                let row = self.inner.read_row(table, partition, row_key).await?;
                Ok(row.into_iter().collect::<Vec<_>>())
            })
        });
        Box::pin(async { Ok(answer.await?.pop()) })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> Answer<'a, Vec<StoredRow>> {
        self.read(table, move || self.inner.read_some(table, partition, from, limit))
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
    ) -> Answer<'a, Vec<StoredRow>> {
        self.read(table, move || self.inner.scan(table, column, range, limit))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> Answer<'a, CommitOutcome> {
        if self.refuses(table) {
            let (store, operation) = (self.describe(), "commit".to_owned());
            let (kind, detail) = (StoreErrorKind::Unavailable, "refused for a test".to_owned());
            return Box::pin(std::future::ready(Err(StoreError {
                kind,
                store,
                operation,
                detail,
            })));
        }
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

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> Answer<'a, ()> {
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
