//! The store itself: requests into statements, answers out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Mutation, Result, Row, StoreError, StoreErrorKind, StoredRow, SystemStore,
    TableDecl, Value,
};
use emmer_store_relational::{Etags, etags, statements, stored_row};
use tokio::time::{Instant, timeout_at};

use crate::connection::{Answer, Parameters};
use crate::dialect::Postgres;
use crate::fault::{Failure, Fault};
use crate::place::Place;
use crate::pool::Pool;
use crate::sql::{AppendParameters, CommitParameters, Query, TableSql};
use crate::tables;
use crate::values::{Parameter, RowCells, microseconds};

/// How long making tables takes at most once the server is reached: others may be making them.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a statement is sent that others made fail.
const ATTEMPTS_MAX: u32 = 8;
/// The most bytes of values in one commit or append; the server ends a session that sends a gigabyte at once.
const REQUEST_BYTES_MAX: usize = 256 << 20;
/// The rows a clean-up deletes in one statement.
const CLEAN_UP_ROWS: u64 = 5_000;

type Known = BTreeMap<&'static str, (&'static TableDecl, Arc<TableSql>)>;

/// A system store in a PostgreSQL database.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
pub struct PostgresStore {
    name: String,
    pool: Pool,
    /// How long an operation takes at most.
    timeout: Duration,
    etags: Etags,
    known: Mutex<Known>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.name).finish()
    }
}

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database`. Where the URL gives no password the environment's
    /// `PGPASSWORD` is used. `?pool_max=8` is how many connections the store opens at most (1 to 64), `?timeout_ms=4800` how
    /// long an operation takes at most, connecting and waiting for locks included (1000 to 60000); the other parameters
    /// are those of the driver's URLs (`target_session_attrs`, `application_name`, `options`, ...).
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot be understood,
    /// `Unavailable` when nobody answers, `Refused` for wrong credentials, a missing database, a standby, an encoding
    /// other than UTF8 or a server older than version 12.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let place = Place::parse(url, std::env::var("PGPASSWORD").ok().as_deref())?;
        let (name, timeout) = (place.name.clone(), place.operation_timeout);
        let (a, b) = uuid::Uuid::new_v4().as_u64_pair();
        // Six bits of a random UUID are fixed, at different places in its halves.
        let etags = Etags::new(a ^ b.rotate_left(32));
        let pool = Pool::new(place);
        pool.warm_up(begun + timeout).await.map_err(|fault| fault.at(&name, "open".to_owned()))?;
        Ok(Self { name, pool, timeout, etags, known: Mutex::default() })
    }

    /// The `CREATE` script for an administrator who lets no application make tables.
    pub fn script(tables: &[&TableDecl]) -> String {
        tables::script(tables)
    }

    fn sql(&self, decl: &'static TableDecl) -> Arc<TableSql> {
        // A panic in between leaves the map as it was.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(decl.name) {
            Some((found, sql)) if *found == decl => sql.clone(),
            _ => {
                let sql = Arc::new(TableSql::new(decl));
                known.insert(decl.name, (decl, sql.clone()));
                sql
            }
        }
    }

    /// Sends a statement once. `Broken` only when the server may have it.
    async fn send(
        &self,
        query: &Query,
        parameters: &Parameters<'_>,
        deadline: Instant,
    ) -> std::result::Result<Answer, Failure> {
        let mut lease = self.pool.acquire(deadline).await.map_err(Failure::Nothing)?;
        let connection = lease.connection().map_err(Failure::Nothing)?;
        let mut sent = false;
        let ended = timeout_at(deadline, connection.run(query, parameters, &mut sent)).await;
        let silent = |_| Err(Failure::Broken(Fault::unavailable("the server does not answer in time")));
        let ended = ended.unwrap_or_else(silent);
        if matches!(ended, Err(Failure::Again(_))) {
            connection.forget_statements();
        }
        ended.map_err(|failure| match failure {
            // Lost before the statement was sent, which another connection may take.
            Failure::Broken(fault) if !sent => Failure::Again(fault),
            failure => failure,
        })
    }

    /// Sends a statement until it is done or refused. A `repeatable` one is sent again when its outcome is not known.
    async fn run(
        &self,
        query: &Query,
        parameters: &Parameters<'_>,
        repeatable: bool,
    ) -> std::result::Result<Answer, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut attempt = 1;
        loop {
            match self.send(query, parameters, deadline).await {
                Err(Failure::Broken(_))
                    if repeatable && attempt < ATTEMPTS_MAX && Instant::now() < deadline => {}
                Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX && Instant::now() < deadline => {}
                ended => return ended,
            }
            attempt += 1;
        }
    }

    /// The same, for requests whose repetition does no harm: a failure is an error.
    async fn ask(
        &self,
        query: &Query,
        parameters: &Parameters<'_>,
        operation: impl Fn() -> String,
    ) -> Result<Answer> {
        let ended = self.run(query, parameters, true).await;
        ended.map_err(|failure| failure.fault().at(&self.name, operation()))
    }

    async fn read(
        &self,
        decl: &'static TableDecl,
        query: &Query,
        parameters: &Parameters<'_>,
        operation: impl Fn() -> String,
    ) -> Result<Vec<StoredRow>> {
        let answer = self.ask(query, parameters, &operation).await?;
        let rows: std::result::Result<Vec<_>, String> =
            answer.rows.iter().map(|row| stored_row(decl, &RowCells(row))).collect();
        rows.map_err(|detail| self.error(StoreErrorKind::Corrupt, operation(), detail))
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.name.as_str(), operation()))
    }

    fn small_enough(&self, bytes: usize, operation: impl Fn() -> String) -> Result<()> {
        if bytes <= REQUEST_BYTES_MAX {
            return Ok(());
        }
        let detail = format!("{bytes} bytes of values, at most {REQUEST_BYTES_MAX} are allowed at once");
        Err(self.error(StoreErrorKind::Invalid, operation(), detail))
    }

    fn error(&self, kind: StoreErrorKind, operation: String, detail: impl fmt::Display) -> StoreError {
        StoreError::new(kind, self.name.as_str(), operation, detail)
    }
}

/// The answer of the commit statement: the position of the first condition that did not hold.
fn verdict(answer: &Answer) -> std::result::Result<Option<usize>, Fault> {
    let strange = || Fault::new(StoreErrorKind::Corrupt, "the server answered a commit with something else");
    let row = answer.rows.first().ok_or_else(strange)?;
    let at: Option<i32> = row.try_get(0).map_err(|_| strange())?;
    at.map(|at| usize::try_from(at).map_err(|_| strange())).transpose()
}

/// The answer to a commit that happened.
fn committed(mutations: &[Mutation], etag: i64) -> CommitOutcome {
    let etag = etags::text(etag);
    let writes = |m: &Mutation| !matches!(m, Mutation::Delete { .. } | Mutation::Check { .. });
    CommitOutcome::Committed(mutations.iter().map(|m| writes(m).then(|| etag.clone())).collect())
}

impl SystemStore for PostgresStore {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let names: Vec<&str> = tables.iter().map(|decl| decl.name).collect();
            let operation = || format!("ensure {}", names.join(", "));
            for decl in tables {
                self.checked(validate::table(decl), operation)?;
            }
            let error = |fault: Fault| fault.at(&self.name, operation());
            let mut lease = self.pool.acquire(Instant::now() + self.timeout).await.map_err(error)?;
            let connection = lease.connection().map_err(error)?;
            let made = timeout_at(Instant::now() + ENSURE_TIMEOUT, tables::ensure(connection, tables)).await;
            made.unwrap_or_else(|_| Err(Fault::unavailable("making tables takes too long"))).map_err(error)
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
            self.read(table, &self.sql(table).read_partition, &[&partition], operation).await
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
            let rows =
                self.read(table, &self.sql(table).read_row, &[&partition, &row_key], operation).await?;
            Ok(rows.into_iter().next())
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
            let (start, end) = (*range.start(), *range.end());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let query = self.sql(table).scan(table, column, start > end);
            self.read(table, &query, &[&start, &end, &limit], operation).await
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
            if mutations.is_empty() {
                return Ok(CommitOutcome::Committed(Vec::new()));
            }
            let etag = self.etags.next();
            let values = CommitParameters::new(table, partition, etag, &mutations);
            self.small_enough(values.bytes(), operation)?;
            let error = |fault: Fault| fault.at(&self.name, operation());
            match self.run(&self.sql(table).commit, &values.parameters(), false).await {
                Ok(answer) => match verdict(&answer) {
                    Ok(None) => Ok(committed(&mutations, etag)),
                    Ok(Some(at)) => Ok(CommitOutcome::Conflict(at)),
                    Err(fault) => Ok(CommitOutcome::Unknown(error(fault))),
                },
                Err(Failure::Broken(fault)) => Ok(CommitOutcome::Unknown(error(fault))),
                Err(Failure::Nothing(fault) | Failure::Again(fault)) => Err(error(fault)),
            }
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
            let query = Query::new(statements::touch(&Postgres, table, column));
            let answer =
                self.ask(&query, &[&partition, &row_key, &Parameter(Some(&value))], operation).await?;
            if answer.affected == 0 {
                return Err(self.error(StoreErrorKind::NotFound, operation(), "the row is not there"));
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
            let values = AppendParameters::new(table, partition, self.etags.next(), &rows);
            self.small_enough(values.bytes(), operation)?;
            self.ask(&self.sql(table).append, &values.parameters(), operation).await.map(drop)
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
            if microseconds(cutoff.as_millis()).is_none() {
                return Err(self.error(StoreErrorKind::Invalid, operation(), "a cutoff out of range"));
            }
            let query = Query::new(statements::delete_older_than(&Postgres, table, column));
            let (cutoff, at_most) = (Value::Time(cutoff), CLEAN_UP_ROWS.cast_signed());
            let mut deleted = 0;
            // Ends: rows as old as this are added no more, and each round deletes some.
            loop {
                let parameters: &Parameters<'_> = &[&partition, &Parameter(Some(&cutoff)), &at_most];
                let round = self.ask(&query, parameters, operation).await?.affected;
                deleted += round;
                if round < CLEAN_UP_ROWS {
                    return Ok(deleted);
                }
            }
        })
    }
}
