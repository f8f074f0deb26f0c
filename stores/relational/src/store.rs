//! The store itself, for any driver: requests checked, sent, repeated; answers and failures in the
//! contract's words.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Contention, Examination, Mutation, Result, Row, StoreError,
    StoreErrorKind, StoreLimits, StoredRow, SystemStore, TableDecl, Value,
};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::driver::{Answer, Driver, Request};
use crate::etags::{self, Etags};
use crate::fault::{Failure, Fault};
use crate::pool::Pool;

/// How long making tables takes at most once the server is reached: others may be making them.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is sent that others made fail: many writers that lock crosswise lose many
/// times, and each time at once.
const ATTEMPTS_MAX: u32 = 64;
/// How often a read is sent whose connection broke.
const BROKEN_MAX: u32 = 8;
/// The rows a clean-up deletes in one statement.
const CLEAN_UP_ROWS: u64 = 5_000;

/// A system store on a server that `D` talks to.
///
/// Dropping it closes its connections.
pub struct Relational<D: Driver> {
    name: String,
    driver: Arc<D>,
    pool: Pool<D>,
    etags: Etags,
    contention: Contention,
}

impl<D: Driver> fmt::Debug for Relational<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relational").field(&self.name).finish()
    }
}

type Ended = std::result::Result<Answer, Failure>;

impl<D: Driver> Relational<D> {
    /// Connects. `name` is the URL without secrets, `begun` the moment from which the time to open
    /// counts, `seed` a random number.
    ///
    /// # Errors
    /// As the driver; `Unavailable` when nobody answers in time.
    pub async fn open(name: String, driver: D, begun: Instant, seed: u64) -> Result<Self> {
        let driver = Arc::new(driver);
        let pool = Pool::new(driver.clone());
        let deadline = begun + driver.limits().timeout;
        pool.warm_up(deadline).await.map_err(|fault| fault.at(&name, "open".to_owned()))?;
        let (etags, contention) = (Etags::new(seed), Contention::new(seed));
        Ok(Self { name, driver, pool, etags, contention })
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.driver.limits().timeout
    }

    /// Sends a request once. `Broken` only when the server may have it.
    async fn send(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Ended {
        self.pool.knows(table);
        let mut lease = self.pool.acquire(deadline).await.map_err(Failure::Nothing)?;
        let connection = lease.connection().map_err(Failure::Nothing)?;
        let mut sent = false;
        let ended =
            timeout_at(deadline, self.driver.run(connection, table, request, &mut sent)).await;
        let silent =
            |_| Err(Failure::Broken(Fault::unavailable("the server does not answer in time")));
        let ended = ended.unwrap_or_else(silent);
        if matches!(ended, Err(Failure::Again(_))) {
            self.driver.forget_prepared(connection);
        }
        ended.map_err(|failure| match failure {
            // Lost before the statement was sent, which another connection may take.
            Failure::Broken(fault) if !sent => Failure::Again(fault),
            failure => failure,
        })
    }

    /// Sends a request until it is done or refused. A `repeatable` one is sent again when its
    /// outcome is not known.
    async fn run(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        repeatable: bool,
        deadline: Instant,
    ) -> Ended {
        let mut attempt = 1;
        loop {
            match self.send(table, request, deadline).await {
                Err(Failure::Broken(_))
                    if repeatable && attempt < BROKEN_MAX && Instant::now() < deadline => {}
                Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX && Instant::now() < deadline => {}
                ended => return ended,
            }
            attempt += 1;
        }
    }

    async fn rows(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        deadline: Instant,
    ) -> std::result::Result<Vec<StoredRow>, Fault> {
        match self.run(table, request, true, deadline).await {
            Ok(Answer::Rows(rows)) => Ok(rows),
            Ok(_) => Err(strange()),
            Err(failure) => Err(failure.fault()),
        }
    }

    /// The rows from `from` on, and as many of those before it as are missing.
    async fn sample(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
        deadline: Instant,
    ) -> std::result::Result<Vec<StoredRow>, Fault> {
        let mut found = Vec::new();
        for before in [false, true] {
            let at_most = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(0);
            if at_most > 0 {
                let request = Request::ReadSome { partition, from, before, at_most };
                found.extend(self.rows(table, &request, deadline).await?);
            }
        }
        // As this program orders them.
        found.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
        Ok(found)
    }

    /// How many rows a request found to change whose repetition does no harm.
    async fn changed(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        operation: impl Fn() -> String,
    ) -> Result<u64> {
        let fault = match self.run(table, request, true, self.deadline()).await {
            Ok(Answer::Changed(count)) => return Ok(count),
            Ok(_) => strange(),
            Err(failure) => failure.fault(),
        };
        Err(fault.at(&self.name, operation()))
    }

    async fn commit_until_decided(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
    ) -> std::result::Result<CommitOutcome, Fault> {
        if mutations.is_empty() {
            return Ok(CommitOutcome::Committed(Vec::new()));
        }
        let deadline = self.deadline();
        let begun = Instant::now();
        let told = async |outcome: CommitOutcome| {
            let wait =
                self.contention.wait(table.name, partition, mutations, &outcome, begun.elapsed());
            if !wait.is_zero() {
                sleep_until(deadline.min(Instant::now() + wait)).await;
            }
            outcome
        };
        let etag = self.etags.next();
        let request = Request::Commit { partition, mutations, etag };
        match self.run(table, &request, false, deadline).await {
            Ok(Answer::Verdict(None)) => Ok(told(committed(mutations, etag)).await),
            Ok(Answer::Verdict(Some(at))) => Ok(told(CommitOutcome::Conflict(at)).await),
            Ok(_) => Ok(CommitOutcome::Unknown(self.at_commit(strange(), table, partition))),
            Err(Failure::Broken(fault)) => {
                Ok(CommitOutcome::Unknown(self.at_commit(fault, table, partition)))
            }
            Err(Failure::Nothing(fault) | Failure::Again(fault)) => Err(fault),
        }
    }

    fn at_commit(&self, fault: Fault, table: &TableDecl, partition: &str) -> StoreError {
        fault.at(&self.name, format!("commit {}/{partition}", table.name))
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.name.as_str(), operation()))
    }

    fn small_enough<'r>(
        &self,
        rows: impl Iterator<Item = &'r Row>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        let most = self.driver.request_bytes_max();
        let bytes: usize = rows.map(size).sum();
        if bytes <= most {
            return Ok(());
        }
        let detail = format!("{bytes} bytes of values, at most {most} are allowed at once");
        Err(self.error(StoreErrorKind::Invalid, operation(), detail))
    }

    fn error(
        &self,
        kind: StoreErrorKind,
        operation: String,
        detail: impl fmt::Display,
    ) -> StoreError {
        StoreError::new(kind, self.name.as_str(), operation, detail)
    }
}

fn strange() -> Fault {
    Fault::corrupt("the server answered with something else")
}

/// The bytes the values of a row take, roughly.
fn size(row: &Row) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(|item| item.len() + 3).sum(),
        Value::Int(_) | Value::Time(_) => 8,
    };
    row.columns().iter().map(|(_, v)| value(v)).sum()
}

/// The row a mutation writes.
fn written(mutation: &Mutation) -> Option<&Row> {
    match mutation {
        Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
            Some(row)
        }
        Mutation::Delete { .. } | Mutation::Check { .. } => None,
    }
}

/// The answer to a commit that happened.
fn committed(mutations: &[Mutation], etag: i64) -> CommitOutcome {
    let etag = etags::text(etag);
    CommitOutcome::Committed(mutations.iter().map(|m| written(m).map(|_| etag.clone())).collect())
}

impl<D: Driver> SystemStore for Relational<D> {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(self.driver.limits().timeout)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::of_commits(self.driver.request_bytes_max())
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let names: Vec<&str> = tables.iter().map(|decl| decl.name).collect();
            let operation = || format!("ensure {}", names.join(", "));
            for decl in tables {
                self.checked(validate::table(decl), operation)?;
            }
            let error = |fault: Fault| fault.at(&self.name, operation());
            let mut lease = self.pool.acquire(self.deadline()).await.map_err(error)?;
            let connection = lease.connection().map_err(error)?;
            let made =
                timeout_at(Instant::now() + ENSURE_TIMEOUT, self.driver.ensure(connection, tables))
                    .await;
            made.unwrap_or_else(|_| Err(Fault::unavailable("making tables takes too long")))
                .map_err(error)
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            let found =
                self.rows(table, &Request::ReadPartition { partition }, self.deadline()).await;
            found.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}/{row_key}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            self.checked(validate::row_key(row_key), operation)?;
            let (deadline, request) = (self.deadline(), Request::ReadRow { partition, row_key });
            let found =
                self.rows(table, &request, deadline).await.map(|rows| rows.into_iter().next());
            found.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("sample {}/{partition}", table.name);
            self.checked(validate::read_some(partition, from, limit), operation)?;
            let found = self.sample(table, partition, from, limit, self.deadline()).await;
            found.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("scan {} by {column}", table.name);
            self.checked(validate::scan(table, column), operation)?;
            let at_most = i64::try_from(limit).unwrap_or(i64::MAX);
            let request =
                Request::Scan { column, start: *range.start(), end: *range.end(), at_most };
            let found = self.rows(table, &request, self.deadline()).await;
            found.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            let operation = || format!("commit {}/{partition}", table.name);
            self.checked(validate::commit(table, partition, &mutations), operation)?;
            self.small_enough(mutations.iter().filter_map(written), operation)?;
            let ended = self.commit_until_decided(table, partition, &mutations).await;
            ended.map_err(|fault| fault.at(&self.name, operation()))
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
        Box::pin(async move {
            let operation = || format!("touch {column} of {}/{partition}/{row_key}", table.name);
            self.checked(validate::touch(table, partition, row_key, column, &value), operation)?;
            let request = Request::Touch { partition, row_key, column, value: &value };
            if self.changed(table, &request, operation).await? == 0 {
                return Err(self.error(
                    StoreErrorKind::NotFound,
                    operation(),
                    "the row is not there",
                ));
            }
            Ok(())
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("append {}/{partition}", table.name);
            self.checked(validate::append(table, partition, &rows), operation)?;
            self.small_enough(rows.iter(), operation)?;
            if rows.is_empty() {
                return Ok(());
            }
            let request = Request::Append { partition, rows: &rows, etag: self.etags.next() };
            self.changed(table, &request, operation).await.map(drop)
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let operation = || format!("clean up {}/{partition}", table.name);
            self.checked(validate::delete_older_than(table, partition, column), operation)?;
            let (cutoff, at_most) = (&Value::Time(cutoff), CLEAN_UP_ROWS.cast_signed());
            let request = Request::DeleteOlderThan { partition, column, cutoff, at_most };
            let mut deleted = 0;
            // Ends: rows as old as this are added no more, and each round deletes some.
            loop {
                let round = self.changed(table, &request, operation).await?;
                deleted += round;
                if round < CLEAN_UP_ROWS {
                    return Ok(deleted);
                }
            }
        })
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async move {
            let error = |fault: Fault| fault.at(&self.name, "examine".to_owned());
            let deadline = self.deadline();
            let mut lease = self.pool.acquire(deadline).await.map_err(error)?;
            let connection = lease.connection().map_err(error)?;
            let found = timeout_at(deadline, self.driver.examine(connection)).await;
            found
                .unwrap_or_else(|_| Err(Fault::unavailable("the server does not answer in time")))
                .map_err(error)
        })
    }
}
