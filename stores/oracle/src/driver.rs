//! Requests into jobs for a session's thread, answers out.

use std::sync::Arc;

use emmer_store::{ColumnType, Examination, StoredRow, TableDecl};
use emmer_store_relational::{Answer, Driver, Failure, Fault, Limits, Made, Request, stored_row};

use crate::commit::Writer;
use crate::connection::{Connection, Threads};
use crate::examine;
use crate::fault::Trouble;
use crate::place::Place;
use crate::session::Session;
use crate::sql::TableSql;
use crate::tables;
use crate::values::{Bound, Kind};

/// The most bytes of values in one commit or append. The server would take more; a silo's memory
/// should not.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The driver of [`OracleStore`](crate::OracleStore).
pub struct OracleDriver {
    place: Place,
    threads: Threads,
    made: Made<TableSql>,
}

impl OracleDriver {
    fn sql(&self, decl: &'static TableDecl) -> Arc<TableSql> {
        self.made.of(decl, || TableSql::new(decl, self.place.limits.statement_timeout()))
    }
}

impl Driver for OracleDriver {
    type Connection = Connection;

    const REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX;

    fn new(url: &str) -> emmer_store::Result<Self> {
        let place = Place::parse(url, std::env::var("ORACLE_PASSWORD").ok().as_deref())?;
        let threads = Threads::new(place.limits.pool_max);
        Ok(Self { place, threads, made: Made::default() })
    }

    fn name(&self) -> &str {
        &self.place.name
    }

    fn limits(&self) -> Limits {
        self.place.limits
    }

    async fn open(&self) -> Result<Connection, Fault> {
        Connection::open(&self.place, &self.threads).await
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
                let text = sql.read_partition.clone();
                read(connection, table, text, vec![Bound::key(partition)]).await
            }
            Request::ReadRow { partition, row_key } => {
                let keys = vec![Bound::key(partition), Bound::key(row_key)];
                read(connection, table, sql.read_row.clone(), keys).await
            }
            Request::ReadSome { partition, from, before, at_most } => {
                let values = vec![Bound::key(partition), Bound::key(from), Bound::int(at_most)];
                read(connection, table, sql.read_some(table, before), values).await
            }
            Request::Scan { column, start, end, at_most } => {
                let values = [start, end, at_most].map(Bound::int).to_vec();
                read(connection, table, sql.scan(column, start > end), values).await
            }
            Request::Commit { partition, mutations, etag } => {
                let writer = Writer { sql, decl: table, partition: partition.to_owned(), etag };
                let mutations = mutations.to_vec();
                let job = move |session: &mut Session| writer.prepare(session, &mutations);
                let verdict = connection.run(job).await.map_err(Trouble::before_commit)?;
                if verdict.is_none() {
                    commit(connection, sent).await?;
                }
                Ok(Answer::Verdict(verdict))
            }
            Request::Touch { partition, row_key, column, value } => {
                let column_type = table.column(column).map(|(_, found)| found.column_type);
                let unknown = || Failure::Nothing(Fault::corrupt("a column that was not declared"));
                let value = Bound::column(column_type.ok_or_else(unknown)?, Some(value));
                let value = value.map_err(Failure::Nothing)?;
                let values = vec![value, Bound::key(partition), Bound::key(row_key)];
                change(connection, sql.touch(column), values, sent).await
            }
            Request::Append { partition, rows, etag } => {
                let writer = Writer { sql, decl: table, partition: partition.to_owned(), etag };
                let rows = rows.to_vec();
                let job = move |session: &mut Session| writer.append(session, &rows);
                connection.run(job).await.map_err(Trouble::before_commit)?;
                commit(connection, sent).await?;
                Ok(Answer::Changed(0))
            }
            Request::DeleteOlderThan { partition, column, cutoff, at_most } => {
                let cutoff =
                    Bound::column(ColumnType::Time, Some(cutoff)).map_err(Failure::Nothing)?;
                let values = vec![Bound::key(partition), cutoff, Bound::int(at_most)];
                change(connection, sql.delete_older_than(column), values, sent).await
            }
        }
    }

    async fn ensure(
        &self,
        connection: &mut Connection,
        tables: &[&'static TableDecl],
    ) -> Result<(), Fault> {
        tables::ensure(&self.place, &self.threads, connection, tables).await
    }

    async fn examine(&self, connection: &mut Connection) -> Result<Examination, Fault> {
        let examined = connection.run(examine::examine).await;
        examined.map_err(|trouble| trouble.fault)
    }
}

/// Runs a query for whole rows of `table`.
async fn read(
    connection: &mut Connection,
    table: &'static TableDecl,
    text: String,
    values: Vec<Bound>,
) -> Result<Answer, Failure> {
    let declared = table.columns.iter().map(|column| Kind::from(column.column_type));
    let kinds: Vec<Kind> = [Kind::Text, Kind::Int].into_iter().chain(declared).collect();
    let job = move |session: &mut Session| session.query(&text, &values, &kinds);
    let rows = connection.run(job).await.map_err(Trouble::before_commit)?;
    let rows: Result<Vec<StoredRow>, String> =
        rows.iter().map(|row| stored_row(table, row)).collect();
    rows.map(Answer::Rows).map_err(|detail| Failure::Nothing(Fault::corrupt(detail)))
}

/// Runs one statement as a transaction.
async fn change(
    connection: &mut Connection,
    text: String,
    values: Vec<Bound>,
    sent: &mut bool,
) -> Result<Answer, Failure> {
    let job =
        move |session: &mut Session| session.transact(|session| session.execute(&text, &values));
    let count = connection.run(job).await.map_err(Trouble::before_commit)?;
    commit(connection, sent).await?;
    Ok(Answer::Changed(count))
}

/// Ends a transaction. A caller that left before this was reached has committed nothing: the
/// connection it leaves behind is closed, and the server rolls back.
async fn commit(connection: &mut Connection, sent: &mut bool) -> Result<(), Failure> {
    *sent = true;
    let ended = connection.run(Session::commit).await;
    // A transaction whose end is in doubt is not left open on a connection that others use.
    connection.in_flight |= ended.is_err();
    ended.map_err(Trouble::at_commit)
}
