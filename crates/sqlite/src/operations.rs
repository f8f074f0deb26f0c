//! The operations of the contract on one connection. Writing ones run inside a transaction of
//! [`crate::worker`].

use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::{CommitOutcome, Mutation, Row, StoreErrorKind, StoredRow, TableDecl, Value};
use emmer_store_relational::{etags, statements, stored_row};
use rusqlite::{CachedStatement, OptionalExtension, params};

use crate::dialect::Sqlite;
use crate::fault::Failed;
use crate::session::Session;
use crate::sql::{self, TableSql};
use crate::values::{Parameter, RowCells};

pub(crate) fn read_partition(
    session: &mut Session,
    decl: &'static TableDecl,
    partition: &str,
) -> Result<Vec<StoredRow>, Failed> {
    // One statement is one snapshot.
    let sql = session.sql(decl);
    let mut statement = session.conn.prepare_cached(&sql.shared.read_partition)?;
    let found = statement.query([partition])?;
    collect(decl, found)
}

pub(crate) fn read_row(
    session: &mut Session,
    decl: &'static TableDecl,
    partition: &str,
    row_key: &str,
) -> Result<Option<StoredRow>, Failed> {
    let sql = session.sql(decl);
    let mut statement = session.conn.prepare_cached(&sql.shared.read_row)?;
    let mut found = statement.query([partition, row_key])?;
    found.next()?.map(|found| row(decl, found)).transpose()
}

pub(crate) fn read_some(
    session: &mut Session,
    decl: &'static TableDecl,
    partition: &str,
    from: &str,
    limit: usize,
) -> Result<Vec<StoredRow>, Failed> {
    let sql = session.sql(decl);
    let mut rows = Vec::new();
    for before in [false, true] {
        let left = i64::try_from(limit - rows.len()).unwrap_or(0);
        let text = sql.shared.read_some(&Sqlite, decl, before);
        let mut statement = session.conn.prepare_cached(&text)?;
        rows.extend(collect(decl, statement.query(params![partition, from, left])?)?);
    }
    rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
    Ok(rows)
}

pub(crate) fn scan(
    session: &mut Session,
    decl: &'static TableDecl,
    column: &str,
    range: &RangeInclusive<i64>,
    limit: usize,
) -> Result<Vec<StoredRow>, Failed> {
    let (start, end) = (*range.start(), *range.end());
    let sql = session.sql(decl).shared.scan(&Sqlite, column, start > end);
    let mut statement = session.conn.prepare_cached(&sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = statement.query([start, end, limit])?;
    collect(decl, found)
}

fn collect(decl: &TableDecl, mut found: rusqlite::Rows<'_>) -> Result<Vec<StoredRow>, Failed> {
    let mut rows = Vec::new();
    while let Some(found) = found.next()? {
        rows.push(row(decl, found)?);
    }
    Ok(rows)
}

fn row(decl: &TableDecl, found: &rusqlite::Row<'_>) -> Result<StoredRow, Failed> {
    stored_row(decl, &RowCells(found))
        .map_err(|detail| Failed::new(StoreErrorKind::Corrupt, detail))
}

/// All conditions are checked before the first write, so that a conflict leaves the transaction,
/// which it may share with other commits, unchanged. The first mutation's condition is checked by
/// its own statement, before the others have written anything.
pub(crate) fn commit(
    session: &mut Session,
    decl: &'static TableDecl,
    partition: &str,
    mutations: &[Mutation],
    new_etag: i64,
) -> Result<CommitOutcome, Failed> {
    let sql = session.sql(decl);
    for (at, mutation) in mutations.iter().enumerate().skip(1) {
        if !holds(session, &sql, partition, mutation)? {
            let first_holds = match mutations.first() {
                Some(first) => holds(session, &sql, partition, first)?,
                None => true,
            };
            return Ok(CommitOutcome::Conflict(if first_holds { at } else { 0 }));
        }
    }
    let shown = etags::text(new_etag);
    let mut etags = Vec::with_capacity(mutations.len());
    for (at, mutation) in mutations.iter().enumerate() {
        let write = Write { session, sql: &sql, decl, partition, new_etag };
        if !write.apply(mutation)? {
            return match at {
                0 => Ok(CommitOutcome::Conflict(0)),
                // Its condition held a moment ago, and this transaction is the only writer.
                _ => Err(Failed::new(
                    StoreErrorKind::Corrupt,
                    "a condition changed inside a transaction",
                )),
            };
        }
        let writes = !matches!(mutation, Mutation::Delete { .. } | Mutation::Check { .. });
        etags.push(writes.then(|| shown.clone()));
    }
    Ok(CommitOutcome::Committed(etags))
}

fn holds(
    session: &Session,
    sql: &TableSql,
    partition: &str,
    mutation: &Mutation,
) -> Result<bool, Failed> {
    if matches!(mutation, Mutation::Upsert { .. }) {
        return Ok(true);
    }
    let mut statement = session.conn.prepare_cached(&sql.etag)?;
    let now: Option<i64> =
        statement.query_row([partition, mutation.row_key()], |row| row.get(0)).optional()?;
    Ok(mutation.holds_where(now, |now, etag| etags::number(etag) == Some(now)))
}

struct Write<'a> {
    session: &'a Session,
    sql: &'a TableSql,
    decl: &'a TableDecl,
    partition: &'a str,
    new_etag: i64,
}

impl Write<'_> {
    /// Does what the mutation says, unless its condition does not hold.
    fn apply(&self, mutation: &Mutation) -> Result<bool, Failed> {
        let (conn, sql) = (&self.session.conn, self.sql);
        let changed = match mutation {
            Mutation::Insert { row } => self.bound(&sql.insert, row)?.raw_execute()?,
            Mutation::Upsert { row } => self.bound(&sql.upsert, row)?.raw_execute()?,
            Mutation::Replace { row, etag } => {
                let Some(etag) = etags::number(etag) else { return Ok(false) };
                let mut statement = self.bound(&sql.replace, row)?;
                statement.raw_bind_parameter(sql::expected_etag(self.decl), etag)?;
                statement.raw_execute()?
            }
            Mutation::Delete { row_key, etag: None } => {
                conn.prepare_cached(&sql.delete)?.execute([self.partition, row_key])?
            }
            Mutation::Delete { row_key, etag: Some(etag) } => {
                let Some(etag) = etags::number(etag) else { return Ok(false) };
                conn.prepare_cached(&sql.delete_if)?.execute(params![
                    self.partition,
                    row_key,
                    etag
                ])?
            }
            Mutation::Check { .. } => return holds(self.session, sql, self.partition, mutation),
        };
        Ok(changed == 1)
    }

    /// The statement with keys, etag and every column bound.
    fn bound(&self, sql: &str, row: &Row) -> Result<CachedStatement<'_>, Failed> {
        let mut statement = self.session.conn.prepare_cached(sql)?;
        statement.raw_bind_parameter(1, self.partition)?;
        statement.raw_bind_parameter(2, row.key())?;
        statement.raw_bind_parameter(3, self.new_etag)?;
        for (i, column) in self.decl.columns.iter().enumerate() {
            statement.raw_bind_parameter(i + 4, Parameter(row.get(column.name)))?;
        }
        Ok(statement)
    }
}

/// Returns true if there was a row to touch.
pub(crate) fn touch(
    session: &Session,
    decl: &TableDecl,
    partition: &str,
    row_key: &str,
    column: &str,
    value: &Value,
) -> Result<bool, Failed> {
    let mut statement = session.conn.prepare_cached(&statements::touch(&Sqlite, decl, column))?;
    Ok(statement.execute(params![partition, row_key, Parameter(Some(value))])? == 1)
}

pub(crate) fn append(
    session: &mut Session,
    decl: &'static TableDecl,
    partition: &str,
    rows: &[Row],
    new_etag: i64,
) -> Result<(), Failed> {
    let sql = session.sql(decl);
    for row in rows {
        let write = Write { session, sql: &sql, decl, partition, new_etag };
        write.bound(&sql.insert, row)?.raw_execute()?;
    }
    Ok(())
}

pub(crate) fn delete_older_than(
    session: &Session,
    decl: &TableDecl,
    partition: &str,
    column: &str,
    cutoff: Timestamp,
) -> Result<u64, Failed> {
    let mut statement = session.conn.prepare_cached(&sql::delete_older_than(decl, column))?;
    Ok(statement.execute(params![partition, cutoff.as_millis()])? as u64)
}
