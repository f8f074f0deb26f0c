//! Requests to a store that no turn can hold up.
//!
//! A turn is polled only while the fence is open. A request inside such a turn would stand still
//! with it, and hold a connection or a lock of the store. The membership's own request, which opens
//! the fence, would then wait for the turn, and the turn for the fence. So requests run in tasks of
//! the silo, each to its end or until its caller drops it. A [`Line`] bounds the number of tasks.

use std::future::{poll_fn, ready};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_net::contain::contain;
use emmer_net::world::Spawner;
use emmer_store::{
    BoxFuture, CommitOutcome, Examination, Mutation, Result, Row, StoreError, StoreErrorKind,
    StoreLimits, StoredRow, SystemStore, TableDecl, Value,
};

use super::line::Line;

/// A store whose requests run in tasks of the silo.
pub(crate) struct Apart {
    store: Arc<dyn SystemStore>,
    line: Arc<Line>,
}

impl Apart {
    /// At most `at_once` requests are under way, in tasks of `spawner`.
    pub(crate) fn new(store: Arc<dyn SystemStore>, spawner: Spawner, at_once: usize) -> Self {
        Self { store, line: Line::new(spawner, at_once) }
    }

    /// Runs a request in a task, and drops it when the returned future is dropped. Returns none if
    /// the request ended without an answer: it panicked, or the runtime of the silo has ended.
    fn run<'a, T: Send + 'static>(
        &'a self,
        request: impl FnOnce(Arc<dyn SystemStore>) -> BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'a, Option<Result<T>>> {
        let request = request(self.store.clone());
        if self.store.answers_at_once() {
            return Box::pin(self.at_once(request));
        }
        Box::pin(self.line.run(request))
    }

    /// Runs a request of a store in this process. As a rule it is over at once, and needs no task.
    async fn at_once<T: Send + 'static>(
        &self,
        mut request: BoxFuture<'static, Result<T>>,
    ) -> Option<Result<T>> {
        let polled = poll_fn(|cx| Poll::Ready(contain(|| request.as_mut().poll(cx)))).await.ok()?;
        match polled {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => self.line.run(request).await,
        }
    }

    /// As [`run`](Self::run), for a request without an unknown outcome.
    fn ask<'a, T: Send + 'static>(
        &'a self,
        operation: &'static str,
        request: impl FnOnce(Arc<dyn SystemStore>) -> BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        let asked = self.run(request);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(self.unanswered(operation))) })
    }

    fn unanswered(&self, operation: &str) -> StoreError {
        let detail = "the request ended without an answer";
        StoreError::new(StoreErrorKind::Unavailable, self.describe(), operation, detail)
    }
}

impl SystemStore for Apart {
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
        let tables = tables.to_vec();
        self.ask("ensure tables", |store| {
            Box::pin(async move { store.ensure_tables(&tables).await })
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let partition = partition.to_owned();
        self.ask("read", |store| {
            Box::pin(async move { store.read_partition(table, &partition).await })
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        // Each first call of a grain with state comes here.
        if self.store.answers_at_once() {
            let mut request = self.store.read_row(table, partition, row_key);
            let mut cx = Context::from_waker(Waker::noop());
            if let Ok(Poll::Ready(answer)) = contain(|| request.as_mut().poll(&mut cx)) {
                return Box::pin(ready(answer));
            }
        }
        let (partition, row_key) = (partition.to_owned(), row_key.to_owned());
        self.ask("read", |store| {
            Box::pin(async move { store.read_row(table, &partition, &row_key).await })
        })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        let (partition, from) = (partition.to_owned(), from.to_owned());
        self.ask("read", move |store| {
            Box::pin(async move { store.read_some(table, &partition, &from, limit).await })
        })
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
        self.ask("scan", move |store| {
            Box::pin(async move { store.scan(table, column, range, limit).await })
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        let partition = partition.to_owned();
        let asked = self
            .run(|store| Box::pin(async move { store.commit(table, &partition, mutations).await }));
        Box::pin(async move {
            let unknown = || Ok(CommitOutcome::Unknown(self.unanswered("commit")));
            asked.await.unwrap_or_else(unknown)
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
        let (partition, row_key) = (partition.to_owned(), row_key.to_owned());
        self.ask("touch", move |store| {
            Box::pin(async move { store.touch(table, &partition, &row_key, column, value).await })
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        let partition = partition.to_owned();
        self.ask("append", |store| {
            Box::pin(async move { store.append(table, &partition, rows).await })
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        let partition = partition.to_owned();
        self.ask("delete", move |store| {
            Box::pin(
                async move { store.delete_older_than(table, &partition, column, cutoff).await },
            )
        })
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        self.ask("examine", |store| Box::pin(async move { store.examine().await }))
    }
}
