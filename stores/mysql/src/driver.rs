//! Requests into statements, answers out.

use std::sync::Arc;

use emmer_store::{Examination, Mutation, StoredRow, TableDecl};
use emmer_store_relational::{Answer, Driver, Failure, Fault, Limits, Made, Request, stored_row};
use mysql_async::{Error, Value};

use crate::commit::{Commit, Judge, Script};
use crate::connection::{Connection, Cut, Said};
use crate::examine;
use crate::fault;
use crate::place::Place;
use crate::sql::TableSql;
use crate::tables;
use crate::values::{RowCells, parameter};

/// The most bytes of values in one commit or append: the server keeps them all until the commit.
const REQUEST_BYTES_MAX: usize = 256 << 20;

/// The driver of [`MysqlStore`](crate::MysqlStore).
pub struct MysqlDriver {
    place: Place,
    made: Made<TableSql>,
}

impl MysqlDriver {
    fn sql(&self, decl: &'static TableDecl) -> Arc<TableSql> {
        self.made.of(decl, || TableSql::new(decl))
    }
}

impl Driver for MysqlDriver {
    type Connection = Connection;

    const REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX;

    fn new(url: &str) -> emmer_store::Result<Self> {
        let place = Place::parse(url, std::env::var("MYSQL_PWD").ok().as_deref())?;
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
        connection.is_usable()
    }

    async fn run(
        &self,
        connection: &mut Connection,
        table: &'static TableDecl,
        request: &Request<'_>,
        sent: &mut bool,
    ) -> Result<Answer, Failure> {
        let sql = self.sql(table);
        let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        let is_read = matches!(
            request,
            Request::ReadPartition { .. }
                | Request::ReadRow { .. }
                | Request::ReadSome { .. }
                | Request::Scan { .. }
        );
        if !is_read {
            connection.wake().await?;
        }
        match *request {
            Request::ReadPartition { partition } => {
                rows(connection, table, &sql.read_partition, vec![text(partition)]).await
            }
            Request::ReadRow { partition, row_key } => {
                rows(connection, table, &sql.read_row, vec![text(partition), text(row_key)]).await
            }
            Request::ReadSome { partition, from, before, at_most } => {
                let parameters = vec![text(partition), text(from), Value::Int(at_most)];
                rows(connection, table, &sql.read_some(table, before), parameters).await
            }
            Request::Scan { column, start, end, at_most } => {
                let parameters = [start, end, at_most].map(Value::Int).to_vec();
                rows(connection, table, &sql.scan(column, start > end), parameters).await
            }
            Request::Commit { partition, mutations, etag } => {
                let packet_max = connection.packet_max;
                let commit = Commit { sql: &sql, decl: table, partition, etag, packet_max };
                let script = commit.script(mutations).map_err(Failure::Nothing)?;
                commit_all(connection, &script, mutations, sent).await.map(Answer::Verdict)
            }
            Request::Touch { partition, row_key, column, value } => {
                let value = parameter(value).map_err(Failure::Nothing)?;
                *sent = true;
                let ended = connection
                    .run(&sql.touch(column), vec![value, text(partition), text(row_key)])
                    .await;
                ended.map(|(_, changed)| Answer::Changed(changed))
            }
            Request::Append { partition, rows, etag } => {
                let packet_max = connection.packet_max;
                let commit = Commit { sql: &sql, decl: table, partition, etag, packet_max };
                let texts = commit.append(rows).map_err(Failure::Nothing)?;
                *sent = true;
                for text in texts {
                    say(connection, &text).await?;
                }
                Ok(Answer::Changed(0))
            }
            Request::DeleteOlderThan { partition, column, cutoff, at_most } => {
                let cutoff = parameter(cutoff).map_err(Failure::Nothing)?;
                *sent = true;
                let parameters = vec![text(partition), cutoff, Value::Int(at_most)];
                let ended = connection.run(&sql.delete_older_than(column), parameters).await;
                ended.map(|(_, changed)| Answer::Changed(changed))
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

async fn rows(
    connection: &mut Connection,
    table: &'static TableDecl,
    text: &str,
    parameters: Vec<Value>,
) -> Result<Answer, Failure> {
    let (rows, _) = connection.run(text, parameters).await?;
    let rows: Result<Vec<StoredRow>, String> =
        rows.iter().map(|row| stored_row(table, &RowCells(row))).collect();
    rows.map(Answer::Rows).map_err(|detail| Failure::Nothing(Fault::corrupt(detail)))
}

/// Sends one text whose repetition does no harm.
async fn say(connection: &mut Connection, text: &[u8]) -> Result<(), Failure> {
    match connection.say(text).await {
        Ok(_) => Ok(()),
        Err(Cut { error, .. }) => {
            let failure = fault::failure(&error);
            connection.settle(&failure).await;
            Err(failure)
        }
    }
}

/// Sends the texts of a commit, and reads its verdict.
async fn commit_all(
    connection: &mut Connection,
    script: &Script,
    mutations: &[Mutation],
    sent: &mut bool,
) -> Result<Option<usize>, Failure> {
    let count = script.texts.len();
    let mut all = Said { cell: None, affected: Vec::new() };
    for (number, text) in (1..).zip(&script.texts) {
        // The `COMMIT` is in the last one.
        *sent = number == count;
        let (said, error) = match connection.say(text).await {
            Ok(said) => (said, None),
            Err(cut) => (cut.said, Some(cut.error)),
        };
        all.cell = all.cell.or(said.cell);
        all.affected.extend(said.affected);
        if let Some(error) = error {
            return failed(connection, script, all.affected.len(), &error).await;
        }
    }
    let strange =
        || Failure::Broken(Fault::corrupt("the server answered a commit with something else"));
    // Nothing is committed before its `COMMIT` was answered, however the driver ended.
    if all.affected.len() != script.statements {
        return Err(strange());
    }
    match (script.judge, all.cell) {
        (Judge::Always | Judge::Inserted, _) => Ok(None),
        (Judge::Found { statement, at }, _) => {
            Ok((*all.affected.get(statement).ok_or_else(strange)? == 0).then_some(at))
        }
        (Judge::Answered, Some(cell)) => match position(&cell) {
            Some(-1) => Ok(None),
            Some(at) => usize::try_from(at)
                .ok()
                .filter(|at| *at < mutations.len())
                .map(Some)
                .ok_or_else(strange),
            None => Err(strange()),
        },
        (Judge::Answered, None) => Err(strange()),
    }
}

/// Texts are answered with texts.
fn position(cell: &Value) -> Option<i64> {
    match cell {
        Value::Int(n) => Some(*n),
        Value::Bytes(digits) => str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// Meaning for the commit of an error of the statement of this number.
async fn failed(
    connection: &mut Connection,
    script: &Script,
    at: usize,
    error: &Error,
) -> Result<Option<usize>, Failure> {
    let is_taken = matches!(error, Error::Server(error) if error.code == fault::DUPLICATE);
    let failure = match fault::failure(error) {
        // The `COMMIT` behind the other statements failed. Of its errors only a victim's says that
        // it is undone.
        Failure::Nothing(fault) if script.statements > 1 && at + 1 >= script.statements => {
            Failure::Broken(fault)
        }
        failure => failure,
    };
    connection.settle(&failure).await;
    if script.judge == Judge::Inserted && is_taken { Ok(Some(0)) } else { Err(failure) }
}
