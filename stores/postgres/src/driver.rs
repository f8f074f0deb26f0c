//! Requests into statements, answers out.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_store::{Examination, StoreErrorKind, StoredRow, TableDecl, Value};
use emmer_store_relational::{
    Answer, Driver, Each, EachAnswer, Failure, Fault, Limits, Made, Request, statements, stored_row,
};

use tokio_postgres::Row;

use crate::connection::{self, Connection, Parameters};
use crate::dialect::Postgres;
use crate::examine;
use crate::place::Place;
use crate::sql::{
    self, AppendParameters, CommitParameters, EachParameters, Query, ReplaceParameters, TableSql,
};
use crate::tables;
use crate::values::{Parameter, microseconds};

/// The most bytes of values in one commit or append; the server ends a session that sends a
/// gigabyte at once.
const REQUEST_BYTES_MAX: usize = 256 << 20;

/// Number of looks for a pooler: one that others use as well may give two sessions by chance.
const LOOKS: usize = 3;

/// The driver of [`PostgresStore`](crate::PostgresStore).
pub struct PostgresDriver {
    place: Place,
    made: Made<TableSql>,
}

impl PostgresDriver {
    fn sql(&self, decl: &'static TableDecl) -> Arc<TableSql> {
        self.made.of(decl, || TableSql::new(decl))
    }
}

impl Driver for PostgresDriver {
    type Connection = Connection;

    const REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX;

    const RUNS_EACH: bool = true;

    fn new(url: &str) -> emmer_store::Result<Self> {
        let place = Place::parse(url, std::env::var("PGPASSWORD").ok().as_deref())?;
        Ok(Self { place, made: Made::default() })
    }

    fn name(&self) -> &str {
        &self.place.name
    }

    fn limits(&self) -> Limits {
        self.place.limits
    }

    async fn open(&self) -> Result<Connection, Fault> {
        Connection::open(&self.place).await
    }

    async fn look(&self, connection: &mut Connection) -> Result<(), Fault> {
        let other = Connection::open(&self.place).await?;
        for _ in 0..LOOKS {
            let (first, second) = (connection.backend().await?, other.backend().await?);
            if first == second || connection.backend().await? != first {
                let why = "a pooler stands before the server and gives each transaction another \
                    session, as PgBouncer with pool_mode = transaction does: statements that are \
                    prepared and settings of a session get lost there; name the server itself, or \
                    a pool with pool_mode = session";
                return Err(Fault::new(StoreErrorKind::Refused, why));
            }
        }
        Ok(())
    }

    fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_usable()
    }

    fn forget_prepared(&self, connection: &mut Connection) {
        connection.forget_statements();
    }

    async fn run(
        &self,
        connection: &mut Connection,
        table: &'static TableDecl,
        request: &Request<'_>,
        sent: &mut bool,
    ) -> Result<Answer, Failure> {
        let known = self.sql(table);
        let mut run = Run { connection, table, sent };
        match *request {
            Request::ReadPartition { partition } => {
                run.rows(&known.read_partition, &[&partition]).await
            }
            Request::ReadRow { partition, row_key } => {
                run.rows(&known.read_row, &[&partition, &row_key]).await
            }
            Request::ReadSome { partition, from, before, at_most } => {
                run.rows(&known.read_some(table, before), &[&partition, &from, &at_most]).await
            }
            Request::Scan { column, start, end, at_most } => {
                run.rows(&known.scan(table, column, start > end), &[&start, &end, &at_most]).await
            }
            Request::Commit { partition, mutations, etag } => {
                if let Some(values) = ReplaceParameters::new(table, partition, etag, mutations) {
                    let changed = run.send(&known.replace, &values.parameters()).await?.affected;
                    return Ok(Answer::Verdict((changed == 0).then_some(0)));
                }
                let values = CommitParameters::new(table, partition, etag, mutations);
                let answer = run.send(&known.commit, &values.parameters()).await?;
                // Its outcome is unknown if its answer cannot be read.
                verdict(&answer).map(Answer::Verdict).map_err(Failure::Broken)
            }
            Request::Touch { partition, row_key, column, value } => {
                let query = Query::new(statements::touch(&Postgres, table, column));
                run.changed(&query, &[&partition, &row_key, &Parameter(Some(value))]).await
            }
            Request::Append { partition, rows, etag } => {
                let values = AppendParameters::new(table, partition, etag, rows);
                run.changed(&known.append, &values.parameters()).await
            }
            Request::DeleteOlderThan { partition, column, cutoff, at_most } => {
                in_range(cutoff).map_err(Failure::Nothing)?;
                let query = Query::new(sql::delete_older_than(table, column));
                run.changed(&query, &[&partition, &Parameter(Some(cutoff)), &at_most]).await
            }
        }
    }

    async fn run_each(
        &self,
        connection: &mut Connection,
        table: &'static TableDecl,
        each: &Each<'_>,
        sent: &mut bool,
    ) -> Result<EachAnswer, Failure> {
        let known = self.sql(table);
        let mut run = Run { connection, table, sent };
        match *each {
            Each::ReadPartition(partitions) => {
                let answer = run.send(&known.read_partition_each, &[&partitions]).await?;
                found(table, partitions.len(), &answer)
            }
            Each::Read { partitions, keys } => {
                let answer = run.send(&known.read_each, &[&partitions, &keys]).await?;
                found(table, keys.len(), &answer)
            }
            Each::Replace(rows) => {
                let values = EachParameters::new(table, rows, false);
                let answer = run.send(&known.replace_each, &values.replaced()).await?;
                let done = |row: &Row| {
                    let turn: i64 = row.try_get(0).ok()?;
                    usize::try_from(turn).ok()?.checked_sub(1)
                };
                written(&values.order, &answer, done)
            }
            Each::Insert(rows) => {
                let values = EachParameters::new(table, rows, true);
                let answer = run.send(&known.insert_each, &values.inserted()).await?;
                // No two etags are the same.
                let places: BTreeMap<i64, usize> =
                    values.etag.iter().enumerate().map(|(at, etag)| (*etag, at)).collect();
                let done = |row: &Row| places.get(&row.try_get::<_, i64>(0).ok()?).copied();
                written(&values.order, &answer, done)
            }
        }
    }

    async fn ensure(
        &self,
        connection: &mut Connection,
        tables: &[&'static TableDecl],
    ) -> Result<(), Fault> {
        tables::ensure(connection, tables).await
    }

    async fn examine(&self, connection: &mut Connection) -> Result<Examination, Fault> {
        examine::examine(connection).await
    }
}

/// One request on one connection.
struct Run<'a> {
    connection: &'a mut Connection,
    table: &'static TableDecl,
    sent: &'a mut bool,
}

impl Run<'_> {
    async fn send(
        &mut self,
        query: &Query,
        parameters: &Parameters<'_>,
    ) -> Result<connection::Answer, Failure> {
        self.connection.run(query, parameters, self.sent).await
    }

    async fn rows(
        &mut self,
        query: &Query,
        parameters: &Parameters<'_>,
    ) -> Result<Answer, Failure> {
        let answer = self.send(query, parameters).await?;
        let rows: Result<Vec<StoredRow>, String> = answer
            .rows
            .iter()
            .map(|row| stored_row(self.table, &crate::values::RowCells(row)))
            .collect();
        rows.map(Answer::Rows).map_err(|detail| Failure::Nothing(Fault::corrupt(detail)))
    }

    async fn changed(
        &mut self,
        query: &Query,
        parameters: &Parameters<'_>,
    ) -> Result<Answer, Failure> {
        Ok(Answer::Changed(self.send(query, parameters).await?.affected))
    }
}

/// The rows that were found, in the places of what was asked for.
fn found(
    table: &'static TableDecl,
    count: usize,
    answer: &connection::Answer,
) -> Result<EachAnswer, Failure> {
    let corrupt = |detail| Failure::Nothing(Fault::corrupt(detail));
    let mut found = vec![Vec::new(); count];
    for row in &answer.rows {
        let turn: i64 = row.try_get(row.len() - 1).map_err(|error| corrupt(error.to_string()))?;
        let place = usize::try_from(turn).ok().and_then(|turn| found.get_mut(turn.wrapping_sub(1)));
        let place = place.ok_or_else(|| corrupt("a row that was not asked for".to_owned()))?;
        place.push(stored_row(table, &crate::values::RowCells(row)).map_err(corrupt)?);
    }
    Ok(EachAnswer::Rows(found))
}

/// Says of each row in the request if it was written. `place` finds the place, in the order of the
/// statement, of a row of the answer. The outcome is unknown if the answer cannot be read.
fn written(
    order: &[usize],
    answer: &connection::Answer,
    place: impl Fn(&Row) -> Option<usize>,
) -> Result<EachAnswer, Failure> {
    let strange = || Failure::Broken(Fault::corrupt("the server answered for other rows"));
    let mut done = vec![false; order.len()];
    for row in &answer.rows {
        let at = place(row).and_then(|at| order.get(at)).ok_or_else(strange)?;
        *done.get_mut(*at).ok_or_else(strange)? = true;
    }
    Ok(EachAnswer::Done(done))
}

fn in_range(time: &Value) -> Result<(), Fault> {
    match time {
        Value::Time(at) if microseconds(at.as_millis()).is_none() => {
            Err(Fault::new(StoreErrorKind::Invalid, "a cutoff out of range"))
        }
        _ => Ok(()),
    }
}

/// The answer of the commit statement: the position of the first condition that did not hold.
fn verdict(answer: &connection::Answer) -> Result<Option<usize>, Fault> {
    let strange = || Fault::corrupt("the server answered a commit with something else");
    let row = answer.rows.first().ok_or_else(strange)?;
    let at: Option<i32> = row.try_get(0).map_err(|_| strange())?;
    at.map(|at| usize::try_from(at).map_err(|_| strange())).transpose()
}
