//! Requests into statements, answers out.

use std::sync::Arc;

use emmer_store::{Examination, StoredRow, TableDecl, Value};
use emmer_store_relational::{
    Answer, Cells, Driver, Failure, Fault, Limits, Made, Request, stored_row,
};
use tiberius::{Row, ToSql};

use crate::connection::Connection;
use crate::examine;
use crate::place::Place;
use crate::sql::{Batch, TableSql};
use crate::tables;
use crate::values::{RowCells, date, literal};

/// Maximum bytes of values in one commit or append: a batch may have 65,536 packets of 4 KiB, and a
/// byte of a text may take eight (two of UTF-16, each as two digits of two bytes).
const REQUEST_BYTES_MAX: usize = 30 << 20;

/// The driver of [`MssqlStore`](crate::MssqlStore).
pub struct MssqlDriver {
    place: Place,
    made: Made<TableSql>,
}

impl MssqlDriver {
    fn sql(&self, decl: &'static TableDecl) -> Arc<TableSql> {
        self.made.of(decl, || TableSql::new(decl))
    }
}

impl Driver for MssqlDriver {
    type Connection = Connection;

    const REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX;

    fn new(url: &str) -> emmer_store::Result<Self> {
        let place = Place::parse(url, std::env::var("MSSQL_PASSWORD").ok().as_deref())?;
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

    fn is_usable(&self, connection: &Connection) -> bool {
        !connection.in_flight
    }

    async fn run(
        &self,
        connection: &mut Connection,
        table: &'static TableDecl,
        request: &Request<'_>,
        sent: &mut bool,
    ) -> Result<Answer, Failure> {
        let sql = self.sql(table);
        match *request {
            Request::ReadPartition { partition } => {
                rows(table, &connection.read(&sql.read_partition, &[&partition.as_bytes()]).await?)
            }
            Request::ReadRow { partition, row_key } => {
                let keys: [&dyn ToSql; 2] = [&partition.as_bytes(), &row_key.as_bytes()];
                rows(table, &connection.query(&sql.read_row, &keys).await?)
            }
            Request::ReadSome { partition, from, before, at_most } => {
                let parameters: [&dyn ToSql; 3] =
                    [&partition.as_bytes(), &from.as_bytes(), &at_most];
                rows(table, &connection.query(&sql.read_some(table, before), &parameters).await?)
            }
            Request::Scan { column, start, end, at_most } => {
                // The server refuses to fetch no row.
                if at_most == 0 {
                    return Ok(Answer::Rows(Vec::new()));
                }
                let text = sql.scan(column, start > end);
                rows(table, &connection.query(&text, &[&start, &end, &at_most]).await?)
            }
            Request::Commit { partition, mutations, etag } => {
                let batch = Batch { sql: &sql, decl: table, partition, etag };
                let text = batch.commit(mutations).map_err(Failure::Nothing)?;
                *sent = true;
                let answer = connection.transaction(&text).await?;
                // Its outcome is unknown if its answer cannot be read.
                verdict(&answer, mutations.len()).map(Answer::Verdict).map_err(Failure::Broken)
            }
            Request::Touch { partition, row_key, column, value } => {
                let mut shown = String::new();
                literal(&mut shown, Some(value)).map_err(Failure::Nothing)?;
                *sent = true;
                let keys: [&dyn ToSql; 2] = [&partition.as_bytes(), &row_key.as_bytes()];
                changed(&connection.query(&sql.touch(column, &shown), &keys).await?)
            }
            Request::Append { partition, rows, etag } => {
                let batch = Batch { sql: &sql, decl: table, partition, etag };
                let text = batch.append(rows).map_err(Failure::Nothing)?;
                *sent = true;
                connection.transaction(&text).await?;
                Ok(Answer::Changed(0))
            }
            Request::DeleteOlderThan { partition, column, cutoff, at_most } => {
                let cutoff = match cutoff {
                    Value::Time(at) => date(at.as_millis()).map_err(Failure::Nothing)?,
                    _ => {
                        return Err(Failure::Nothing(Fault::corrupt(
                            "a cutoff that is not a time",
                        )));
                    }
                };
                *sent = true;
                let parameters: [&dyn ToSql; 3] =
                    [&partition.as_bytes(), &cutoff.as_str(), &at_most];
                changed(&connection.query(&sql.delete_older_than(column), &parameters).await?)
            }
        }
    }

    async fn ensure(
        &self,
        connection: &mut Connection,
        tables: &[&'static TableDecl],
    ) -> Result<(), Fault> {
        tables::ensure(connection, tables, self.place.limits.statement_timeout()).await
    }

    async fn examine(&self, connection: &mut Connection) -> Result<Examination, Fault> {
        examine::examine(connection, self.place.is_encrypted).await
    }
}

fn rows(table: &'static TableDecl, rows: &[Row]) -> Result<Answer, Failure> {
    let rows: Result<Vec<StoredRow>, String> =
        rows.iter().map(|row| stored_row(table, &RowCells::new(row))).collect();
    rows.map(Answer::Rows).map_err(|detail| Failure::Nothing(Fault::corrupt(detail)))
}

/// The answer of a statement that says how many rows it changed. It is done; only its answer may be
/// strange.
fn changed(answer: &[Row]) -> Result<Answer, Failure> {
    let count = answer.first().and_then(|row| RowCells::new(row).int(0).ok().flatten());
    let count = count.and_then(|count| u64::try_from(count).ok());
    let strange =
        || Failure::Broken(Fault::corrupt("the server answered a change with something else"));
    count.map(Answer::Changed).ok_or_else(strange)
}

/// The answer of a commit: the position of the first condition that did not hold, or -1.
fn verdict(answer: &[Row], mutations: usize) -> Result<Option<usize>, Fault> {
    let strange = || Fault::corrupt("the server answered a commit with something else");
    let row = answer.first().ok_or_else(strange)?;
    match RowCells::new(row).int(0).map_err(|_| strange())? {
        Some(-1) => Ok(None),
        Some(at) => {
            usize::try_from(at).ok().filter(|at| *at < mutations).map(Some).ok_or_else(strange)
        }
        None => Err(strange()),
    }
}
