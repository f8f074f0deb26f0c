//! The system store of a world: in memory, as slow and as unreliable as a test wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::{
    BoxFuture, CommitOutcome, MemoryStore, Mutation, Result, Row, StoreError, StoreErrorKind,
    StoredRow, SystemStore, TableDecl, Value,
};
use emmer_virtual::Host;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time of a request that nothing disturbs, there and back.
const QUICK: Duration = Duration::from_millis(1);

/// After this a client of the store gives a request up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses connections: nothing is done.
    Unavailable,
    /// The server refuses the request: nothing is done.
    Refused,
    /// Another writer was quicker: a conditional write fails. Other requests are
    /// [`Unavailable`](Self::Unavailable).
    Conflict,
    /// A write is done, and the answer is lost. Other requests are
    /// [`Unavailable`](Self::Unavailable).
    LostAnswer,
}

#[derive(Debug, Default)]
struct Faults {
    /// Every request fails.
    away: Option<Failure>,
    /// No request is answered, until it is given up.
    silent: bool,
    /// Every request takes so much longer.
    slow: Duration,
    /// Whose requests are not answered.
    cut_off: BTreeSet<IpAddr>,
    /// The next write to a partition or row whose name contains this text fails.
    next_writes: Vec<(String, Failure)>,
    /// Number of requests that one host may have under way.
    connections: Option<usize>,
    /// Connections of each host that are free.
    pools: BTreeMap<IpAddr, Arc<Semaphore>>,
    reads: u64,
    writes: u64,
}

/// The store of a world. All silos and clients share it, as they share a server.
#[derive(Clone)]
pub struct TestStore {
    inner: Arc<MemoryStore>,
    faults: Arc<Mutex<Faults>>,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        Self { inner: Arc::new(MemoryStore::new()), faults: Arc::default() }
    }

    /// Lets every request fail from now on, in this way.
    pub fn fail(&self, how: Failure) {
        self.faults.lock().away = Some(how);
    }

    /// Lets no request be answered from now on.
    pub fn be_silent(&self) {
        self.faults.lock().silent = true;
    }

    /// Lets every request take so much longer.
    pub fn be_slow(&self, by: Duration) {
        self.faults.lock().slow = by;
    }

    /// Gives each silo and client this many connections from now on: further requests wait for a
    /// free one, first come, first served, and fail when they have waited for too long.
    pub fn limit_connections(&self, connections: usize) {
        let mut faults = self.faults.lock();
        faults.connections = Some(connections);
        faults.pools.clear();
    }

    /// Ends every fault. Connections stay limited.
    pub fn recover(&self) {
        let mut faults = self.faults.lock();
        let Faults { reads, writes, connections, .. } = *faults;
        let pools = std::mem::take(&mut faults.pools);
        *faults = Faults { reads, writes, connections, pools, ..Faults::default() };
    }

    /// Lets the next write fail whose partition or row names `what`, for instance the key of a
    /// grain.
    pub fn fail_next_write(&self, what: &str, how: Failure) {
        self.faults.lock().next_writes.push((what.to_owned(), how));
    }

    /// The tables as they are, without any fault: for a test that looks at them.
    pub fn tables(&self) -> Arc<dyn SystemStore> {
        self.inner.clone()
    }

    /// Numbers of reads and writes so far.
    pub fn requests(&self) -> (u64, u64) {
        let faults = self.faults.lock();
        (faults.reads, faults.writes)
    }

    pub(crate) fn cut_off(&self, ip: IpAddr) {
        self.faults.lock().cut_off.insert(ip);
    }

    pub(crate) fn let_back(&self, ip: IpAddr) {
        self.faults.lock().cut_off.remove(&ip);
    }

    fn error(&self, kind: StoreErrorKind, operation: &str, detail: &str) -> StoreError {
        StoreError {
            kind,
            store: self.describe(),
            operation: operation.to_owned(),
            detail: detail.to_owned(),
        }
    }

    /// Error of a failed request.
    fn failed(&self, how: Failure, operation: &str) -> StoreError {
        match how {
            Failure::Refused => {
                self.error(StoreErrorKind::Refused, operation, "the test lets the store refuse")
            }
            _ => self.error(
                StoreErrorKind::Unavailable,
                operation,
                "the test lets the store be away",
            ),
        }
    }

    /// Waits for a connection of the host that asks, where connections are limited.
    async fn connect(&self, operation: &str) -> Result<Option<OwnedSemaphorePermit>> {
        let pool = {
            let mut faults = self.faults.lock();
            let Faults { connections, pools, .. } = &mut *faults;
            connections.zip(Host::current()).map(|(connections, host)| {
                pools
                    .entry(host.ip())
                    .or_insert_with(|| Arc::new(Semaphore::new(connections)))
                    .clone()
            })
        };
        let Some(pool) = pool else { return Ok(None) };
        let free = tokio::time::timeout(REQUEST_TIMEOUT, pool.acquire_owned()).await;
        free.ok().and_then(std::result::Result::ok).map(Some).ok_or_else(|| {
            self.error(StoreErrorKind::Unavailable, operation, "all connections are busy")
        })
    }

    /// Waits as long as the request takes. How it fails, if the whole store does.
    async fn pass(&self, operation: &str) -> Result<Option<Failure>> {
        let (away, lost, time) = {
            let faults = self.faults.lock();
            let cut_off = Host::current().is_some_and(|host| faults.cut_off.contains(&host.ip()));
            (faults.away, faults.silent || cut_off, QUICK + faults.slow)
        };
        if lost || time > REQUEST_TIMEOUT {
            tokio::time::sleep(REQUEST_TIMEOUT).await;
            return Err(self.error(StoreErrorKind::Unavailable, operation, "no answer"));
        }
        tokio::time::sleep(time).await;
        Ok(away)
    }

    async fn read<T>(&self, operation: &str, read: impl Future<Output = Result<T>>) -> Result<T> {
        self.faults.lock().reads += 1;
        let _connection = self.connect(operation).await?;
        match self.pass(operation).await? {
            None => read.await,
            Some(how) => Err(self.failed(how, operation)),
        }
    }

    /// Failure of the next write to one of these names, if it shall fail.
    fn next_failure(&self, partition: &str, keys: &[String]) -> Option<Failure> {
        let mut faults = self.faults.lock();
        faults.writes += 1;
        let named =
            |what: &String| partition.contains(what) || keys.iter().any(|key| key.contains(what));
        let at = faults.next_writes.iter().position(|(what, _)| named(what))?;
        Some(faults.next_writes.remove(at).1)
    }

    async fn write<T>(
        &self,
        operation: &str,
        next: Option<Failure>,
        write: impl Future<Output = Result<T>>,
        conflict: Option<T>,
        unknown: impl FnOnce(StoreError) -> Result<T>,
    ) -> Result<T> {
        let _connection = self.connect(operation).await?;
        let how = self.pass(operation).await?.or(next);
        match (how, conflict) {
            (None, _) => write.await,
            (Some(Failure::Conflict), Some(conflict)) => Ok(conflict),
            (Some(Failure::LostAnswer), _) => {
                let _ = write.await;
                unknown(self.error(
                    StoreErrorKind::Unavailable,
                    operation,
                    "the test lets the answer be lost",
                ))
            }
            (Some(how), _) => Err(self.failed(how, operation)),
        }
    }
}

impl SystemStore for TestStore {
    fn describe(&self) -> String {
        "test store".to_owned()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(REQUEST_TIMEOUT)
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.read("ensure tables", self.inner.ensure_tables(tables)))
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(self.read("read", self.inner.read_partition(table, partition)))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(self.read("read", self.inner.read_row(table, partition, row_key)))
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(self.read("sample", self.inner.read_some(table, partition, from, limit)))
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
        Box::pin(self.read("scan", self.inner.scan(table, column, range, limit)))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        let keys: Vec<_> = mutations.iter().map(|m| m.row_key().to_owned()).collect();
        let next = self.next_failure(partition, &keys);
        let write = self.inner.commit(table, partition, mutations);
        let unknown = |error| Ok(CommitOutcome::Unknown(error));
        Box::pin(self.write("commit", next, write, Some(CommitOutcome::Conflict(0)), unknown))
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        let next = self.next_failure(partition, &[row_key.to_owned()]);
        Box::pin(self.write(
            "touch",
            next,
            self.inner.touch(table, partition, row_key, column, value),
            None,
            Err,
        ))
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        let next = self.next_failure(partition, &[]);
        Box::pin(self.write("append", next, self.inner.append(table, partition, rows), None, Err))
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        let next = self.next_failure(partition, &[]);
        let write = self.inner.delete_older_than(table, partition, column, cutoff);
        Box::pin(self.write("delete", next, write, None, Err))
    }
}

impl std::fmt::Debug for TestStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestStore").field("faults", &self.faults.lock()).finish_non_exhaustive()
    }
}
