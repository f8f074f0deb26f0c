//! The statements of one table, and the two that carry many rows as arrays.

use std::sync::Arc;

use emmer_store::silos::VERSION_ROW;
use emmer_store::{Mutation, Row, TableDecl};
use emmer_store_relational::{Dialect, EachRow, Names, Statements, etags, order};
use tokio_postgres::types::{ToSql, Type};

use crate::dialect::Postgres;
use crate::values::{Parameter, array_name, type_of};

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) text: Arc<str>,
    /// The types of its answer's columns, where they are declared.
    pub(crate) answers: Option<Arc<[Type]>>,
}

impl Query {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), answers: None }
    }
}

/// The statements of one table.
#[derive(Debug)]
pub(crate) struct TableSql {
    shared: Statements,
    pub(crate) read_partition: Query,
    pub(crate) read_row: Query,
    pub(crate) commit: Query,
    pub(crate) replace: Query,
    pub(crate) append: Query,
    pub(crate) read_each: Query,
    pub(crate) read_partition_each: Query,
    pub(crate) replace_each: Query,
    pub(crate) insert_each: Query,
}

impl TableSql {
    pub(crate) fn new(decl: &TableDecl) -> Self {
        let shared = Statements::new(&Postgres, decl);
        Self {
            read_partition: select(decl, &shared.read_partition),
            read_row: select(decl, &shared.read_row),
            commit: Query::new(commit(decl)),
            replace: Query::new(replace(decl)),
            append: Query::new(append(decl)),
            read_each: with_turn(decl, read_each(decl)),
            read_partition_each: with_turn(decl, read_partition_each(decl)),
            replace_each: Query::new(replace_each(decl)),
            insert_each: Query::new(insert_each(decl)),
            shared,
        }
    }

    pub(crate) fn read_some(&self, decl: &TableDecl, before: bool) -> Query {
        select(decl, &self.shared.read_some(&Postgres, decl, before))
    }

    pub(crate) fn scan(&self, decl: &TableDecl, column: &str, wraps: bool) -> Query {
        select(decl, &self.shared.scan(&Postgres, column, wraps))
    }
}

fn select(decl: &TableDecl, text: &str) -> Query {
    Query { answers: Some(answers(decl, &[])), ..Query::new(text) }
}

/// A statement that answers rows, each with its position in the arrays.
fn with_turn(decl: &TableDecl, text: String) -> Query {
    Query { answers: Some(answers(decl, &[Type::INT8])), ..Query::new(text) }
}

/// The types of a row in an answer, and those behind it.
fn answers(decl: &TableDecl, behind: &[Type]) -> Arc<[Type]> {
    let columns = decl.columns.iter().map(|c| type_of(c.column_type));
    [Type::TEXT, Type::INT8].into_iter().chain(columns).chain(behind.iter().cloned()).collect()
}

/// Names of mutations in the commit statement.
mod op {
    pub(super) const INSERT: i16 = 0;
    pub(super) const REPLACE: i16 = 1;
    pub(super) const UPSERT: i16 = 2;
    pub(super) const DELETE: i16 = 3;
    pub(super) const CHECK: i16 = 4;
    /// Its condition cannot hold: the expected etag is foreign.
    pub(super) const NEVER: i16 = 5;
    pub(super) const DELETE_IF: i16 = 6;
}

/// The whole commit. Parameters: partition, new etag, then an array each of the mutations'
/// positions, operations, keys, expected etags, and one of each column's values.
///
/// `m` locks the row of each mutation in the order of the arrays and reads its present etag, not
/// that of the statement's snapshot. `verdict` is the first position whose condition does not hold.
/// The rest writes if there is none. A row that another writer makes in between fails its insert,
/// and with it the statement, which is then sent again. No part joins the table with the mutations,
/// so no plan can be quadratic.
///
/// Commits never deadlock. Existing rows are locked in one order. Then `made` inserts missing rows
/// in the same order, whatever the mutation is called, and waits at most for writers that have come
/// as far: an existing row, even a locked one, is a duplicate at once. A commit that has made its
/// rows holds all locks that it needs, and does not wait. `written` and `deleted` ask how many were
/// made, because the server runs parts that nothing asks for in an order of its own.
///
/// The answer is the verdict. A commit that conflicts has locked rows, and the server would wait
/// for its disk because of that. There is nothing to make durable, so this wait is switched off.
fn commit(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let numbered: Vec<_> = columns.iter().enumerate().zip(decl.columns).collect();
    let arrays: String = numbered
        .iter()
        .map(|((i, _), c)| format!(", ${}::{}", i + FIRST_COLUMN, array_name(c.column_type)))
        .collect();
    let aliases: String = numbered.iter().map(|((i, _), _)| format!(", c{i}")).collect();
    let values: String = numbered.iter().map(|((i, _), _)| format!(", m.c{i}")).collect();
    let names: String = columns.iter().map(|name| format!(", {name}")).collect();
    let lasting = numbered.iter().filter(|(_, c)| !c.volatile);
    let assignments: String =
        lasting.map(|((_, name), _)| format!(", {name} = excluded.{name}")).collect();
    let [insert, replace, upsert] = [op::INSERT, op::REPLACE, op::UPSERT];
    let [delete, delete_if, never] = [op::DELETE, op::DELETE_IF, op::NEVER];
    let write = format!(
        "INSERT INTO {table} ({partition}, {row}, {etag}{names})
           SELECT $1, m.key, $2{values} FROM m, verdict v"
    );
    format!(
        "WITH m AS MATERIALIZED (
           SELECT u.*, l.found
           FROM unnest($3::int[], $4::smallint[], $5::text[], $6::bigint[]{arrays}) WITH ORDINALITY
                AS u(at, op, key, expected{aliases}, turn)
           LEFT JOIN LATERAL (
             SELECT s.{etag} AS found FROM {table} s
             WHERE s.{partition} = $1 AND s.{row} = u.key FOR UPDATE
           ) l ON true
         ), verdict AS MATERIALIZED (
           SELECT min(m.at) FILTER (WHERE CASE m.op
             WHEN {insert} THEN m.found IS NOT NULL
             WHEN {upsert} THEN false
             WHEN {delete} THEN m.found IS NULL
             WHEN {never} THEN true
             ELSE m.found IS DISTINCT FROM m.expected END) AS conflict
           FROM m
         ), made AS (
           {write} WHERE v.conflict IS NULL AND m.found IS NULL AND m.op IN ({insert}, {upsert})
           ORDER BY m.turn
           RETURNING 1
         ), ready AS MATERIALIZED (
           SELECT count(*) AS made FROM made
         ), written AS (
           {write}, ready r
           WHERE v.conflict IS NULL AND m.found IS NOT NULL AND m.op IN ({replace}, {upsert})
             AND r.made >= 0
           ON CONFLICT ({partition}, {row}) DO UPDATE SET {etag} = excluded.{etag}{assignments}
         ), deleted AS (
           DELETE FROM {table} WHERE {partition} = $1 AND {row} = ANY (ARRAY(
             SELECT m.key FROM m, verdict v, ready r
             WHERE v.conflict IS NULL AND m.op IN ({delete}, {delete_if}) AND r.made >= 0))
         )
         SELECT v.conflict,
                CASE WHEN v.conflict IS NOT NULL
                  THEN set_config('synchronous_commit', 'off', true) END
         FROM verdict v"
    )
}

/// The number of the parameter with the first column's values in a commit.
const FIRST_COLUMN: usize = 7;

/// A commit of one row that is replaced, the most frequent one: it changes one row or none.
/// Parameters: partition, key, expected etag, new etag, then the values of the columns that are not
/// volatile.
///
/// A trigger of the user's sees an update only. The statement for many rows inserts and finds the
/// row there, which such a trigger sees as two events.
fn replace(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let lasting = columns.iter().zip(decl.columns).filter(|(_, column)| !column.volatile);
    let assignments: String =
        lasting.enumerate().map(|(i, (name, _))| format!(", {name} = ${}", i + 5)).collect();
    format!(
        "UPDATE {table} SET {etag} = $4{assignments}
         WHERE {partition} = $1 AND {row} = $2 AND {etag} = $3"
    )
}

/// Reads rows by their keys. Parameters: an array of partitions, one of keys. Answers what
/// [`Statements::read_row`] does of each row that exists, and then its position in the arrays, from
/// 1 on.
fn read_each(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let columns: String = columns.iter().map(|name| format!(", s.{name}")).collect();
    format!(
        "SELECT s.{row}, s.{etag}{columns}, u.turn
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(partition, key, turn)
         JOIN {table} s ON s.{partition} = u.partition AND s.{row} = u.key"
    )
}

/// Reads partitions. Parameter: an array of them. Answers what [`Statements::read_partition`] does
/// of each, in its order, and then its position in the array, from 1 on.
fn read_partition_each(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let columns: String = columns.iter().map(|name| format!(", s.{name}")).collect();
    format!(
        "SELECT s.{row}, s.{etag}{columns}, u.turn
         FROM unnest($1::text[]) WITH ORDINALITY AS u(partition, turn)
         JOIN {table} s ON s.{partition} = u.partition
         ORDER BY u.turn, s.{row}"
    )
}

/// Replaces rows, each for itself. Parameters: arrays of partitions, keys, expected etags, new
/// etags, and of each lasting column's values. Answers the positions of the rows that were
/// replaced.
fn replace_each(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let lasting: Vec<_> =
        columns.iter().zip(decl.columns).filter(|(_, column)| !column.volatile).collect();
    let numbered = || lasting.iter().enumerate();
    let arrays: String = numbered()
        .map(|(i, (_, column))| format!(", ${}::{}", i + 5, array_name(column.column_type)))
        .collect();
    let aliases: String = numbered().map(|(i, _)| format!(", c{i}")).collect();
    let assignments: String =
        numbered().map(|(i, (name, _))| format!(", {name} = u.c{i}")).collect();
    format!(
        "UPDATE {table} s SET {etag} = u.etag{assignments}
         FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]{arrays}) WITH ORDINALITY
              AS u(partition, key, expected, etag{aliases}, turn)
         WHERE s.{partition} = u.partition AND s.{row} = u.key AND s.{etag} = u.expected
         RETURNING u.turn"
    )
}

/// Adds rows that do not exist, each for itself. Parameters: arrays of partitions, keys, etags, and
/// of each column's values. Answers the etags of the rows that were added.
fn insert_each(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let arrays: String = decl
        .columns
        .iter()
        .enumerate()
        .map(|(i, column)| format!(", ${}::{}", i + 4, array_name(column.column_type)))
        .collect();
    let names: String = columns.iter().map(|name| format!(", {name}")).collect();
    format!(
        "INSERT INTO {table} ({partition}, {row}, {etag}{names})
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]{arrays})
         ON CONFLICT ({partition}, {row}) DO NOTHING
         RETURNING {etag}"
    )
}

/// Adds rows. Parameters: partition, etag, an array of keys, one of each column's values.
fn append(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Postgres, decl);
    let numbered = decl.columns.iter().enumerate();
    let arrays: String = numbered
        .clone()
        .map(|(i, c)| format!(", ${}::{}", i + 4, array_name(c.column_type)))
        .collect();
    let aliases: String = numbered.map(|(i, _)| format!(", c{i}")).collect();
    let names: String = columns.iter().map(|name| format!(", {name}")).collect();
    format!(
        "INSERT INTO {table} ({partition}, {row}, {etag}{names})
         SELECT $1, u.key, $2{aliases} FROM unnest($3::text[]{arrays}) AS u(key{aliases})
         ON CONFLICT ({partition}, {row}) DO NOTHING"
    )
}

/// Deletes at most parameter 3 rows of partition 1 whose time `column` is before parameter 2, which
/// it locks first, in the order of all locks.
pub(crate) fn delete_older_than(decl: &TableDecl, column: &str) -> String {
    let Names { table, partition, row, .. } = Names::new(&Postgres, decl);
    let column = Postgres.quote(&Postgres.fold(column));
    // The time is compared again outside: a row that was moved on while this statement waited for
    // it stays.
    format!(
        "WITH old AS MATERIALIZED (
           SELECT {row} AS key FROM {table} WHERE {partition} = $1 AND {column} < $2
           ORDER BY {row} <> '{VERSION_ROW}', {row} LIMIT $3 FOR UPDATE
         )
         DELETE FROM {table}
         WHERE {partition} = $1 AND {column} < $2 AND {row} = ANY (ARRAY(SELECT old.key FROM old))"
    )
}

/// Rows, column by column.
pub(crate) struct Columns<'a> {
    arrays: Vec<Vec<Parameter<'a>>>,
}

impl<'a> Columns<'a> {
    fn new(decl: &TableDecl, rows: usize) -> Self {
        Self { arrays: decl.columns.iter().map(|_| Vec::with_capacity(rows)).collect() }
    }

    /// Adds a row, or one of nulls.
    fn push(&mut self, decl: &TableDecl, row: Option<&'a Row>) {
        for (array, column) in self.arrays.iter_mut().zip(decl.columns) {
            let value = row.and_then(|row| row.get(column.name));
            array.push(Parameter(value));
        }
    }

    fn parameters(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.arrays.iter().map(|array| array as &(dyn ToSql + Sync))
    }
}

/// The parameters of a commit.
pub(crate) struct CommitParameters<'a> {
    partition: &'a str,
    etag: i64,
    at: Vec<i32>,
    op: Vec<i16>,
    key: Vec<&'a str>,
    expected: Vec<Option<i64>>,
    columns: Columns<'a>,
}

impl<'a> CommitParameters<'a> {
    /// In the order of locks, so that two commits that meet on several rows wait for each other
    /// instead of each for the other.
    pub(crate) fn new(
        decl: &TableDecl,
        partition: &'a str,
        etag: i64,
        mutations: &'a [Mutation],
    ) -> Self {
        let count = mutations.len();
        let mut made = Self {
            partition,
            etag,
            at: Vec::with_capacity(count),
            op: Vec::with_capacity(count),
            key: Vec::with_capacity(count),
            expected: Vec::with_capacity(count),
            columns: Columns::new(decl, count),
        };
        for (at, mutation) in order::mutations(mutations) {
            let (op, etag, row) = match mutation {
                Mutation::Insert { row } => (op::INSERT, None, Some(row)),
                Mutation::Upsert { row } => (op::UPSERT, None, Some(row)),
                Mutation::Replace { row, etag } => (op::REPLACE, Some(etag), Some(row)),
                Mutation::Delete { etag: None, .. } => (op::DELETE, None, None),
                Mutation::Delete { etag: Some(etag), .. } => (op::DELETE_IF, Some(etag), None),
                Mutation::Check { etag, .. } => (op::CHECK, Some(etag), None),
            };
            let expected = etag.and_then(|etag| etags::number(etag));
            made.op.push(if etag.is_some() && expected.is_none() { op::NEVER } else { op });
            // At most a hundred.
            made.at.push(i32::try_from(at).unwrap_or(i32::MAX));
            made.key.push(mutation.row_key());
            made.expected.push(expected);
            made.columns.push(decl, row);
        }
        made
    }

    pub(crate) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let first: [&(dyn ToSql + Sync); FIRST_COLUMN - 1] =
            [&self.partition, &self.etag, &self.at, &self.op, &self.key, &self.expected];
        first.into_iter().chain(self.columns.parameters()).collect()
    }
}

/// The parameters of a row that is replaced.
pub(crate) struct ReplaceParameters<'a> {
    partition: &'a str,
    key: &'a str,
    expected: i64,
    etag: i64,
    values: Vec<Parameter<'a>>,
}

impl<'a> ReplaceParameters<'a> {
    /// None if the commit has other mutations, or expects a foreign etag.
    pub(crate) fn new(
        decl: &TableDecl,
        partition: &'a str,
        etag: i64,
        mutations: &'a [Mutation],
    ) -> Option<Self> {
        let [Mutation::Replace { row, etag: expected }] = mutations else { return None };
        let expected = etags::number(expected)?;
        let lasting = decl.columns.iter().filter(|column| !column.volatile);
        let values = lasting.map(|column| Parameter(row.get(column.name))).collect();
        Some(Self { partition, key: row.key(), expected, etag, values })
    }

    pub(crate) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let first: [&(dyn ToSql + Sync); 4] =
            [&self.partition, &self.key, &self.expected, &self.etag];
        first.into_iter().chain(self.values.iter().map(|v| v as &(dyn ToSql + Sync))).collect()
    }
}

/// The parameters of rows that are written each for itself, in the order of locks.
pub(crate) struct EachParameters<'a> {
    /// Positions of the rows in the request.
    pub(crate) order: Vec<usize>,
    partition: Vec<&'a str>,
    key: Vec<&'a str>,
    expected: Vec<i64>,
    pub(crate) etag: Vec<i64>,
    arrays: Vec<Vec<Parameter<'a>>>,
}

impl<'a> EachParameters<'a> {
    /// With the values of all columns, or of the lasting ones.
    pub(crate) fn new(decl: &TableDecl, rows: &'a [EachRow<'a>], all: bool) -> Self {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|at| rows.get(*at).map(|row| (row.partition, row.row.key())));
        let sorted: Vec<_> = order.iter().filter_map(|at| rows.get(*at)).collect();
        let columns = decl.columns.iter().filter(|column| all || !column.volatile);
        let arrays = columns
            .map(|column| sorted.iter().map(|row| Parameter(row.row.get(column.name))).collect())
            .collect();
        Self {
            partition: sorted.iter().map(|row| row.partition).collect(),
            key: sorted.iter().map(|row| row.row.key()).collect(),
            expected: sorted.iter().map(|row| row.expected).collect(),
            etag: sorted.iter().map(|row| row.etag).collect(),
            arrays,
            order,
        }
    }

    /// Of rows that are replaced.
    pub(crate) fn replaced(&self) -> Vec<&(dyn ToSql + Sync)> {
        let first: [&(dyn ToSql + Sync); 4] =
            [&self.partition, &self.key, &self.expected, &self.etag];
        first.into_iter().chain(self.arrays()).collect()
    }

    /// Of rows that are added.
    pub(crate) fn inserted(&self) -> Vec<&(dyn ToSql + Sync)> {
        let first: [&(dyn ToSql + Sync); 3] = [&self.partition, &self.key, &self.etag];
        first.into_iter().chain(self.arrays()).collect()
    }

    fn arrays(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.arrays.iter().map(|array| array as &(dyn ToSql + Sync))
    }
}

/// The parameters of an append.
pub(crate) struct AppendParameters<'a> {
    partition: &'a str,
    etag: i64,
    key: Vec<&'a str>,
    columns: Columns<'a>,
}

impl<'a> AppendParameters<'a> {
    /// In the order of locks, so that two appends of the same rows wait for each other instead of
    /// each for the other.
    pub(crate) fn new(decl: &TableDecl, partition: &'a str, etag: i64, rows: &'a [Row]) -> Self {
        let order = order::rows(rows);
        let mut columns = Columns::new(decl, rows.len());
        order.iter().for_each(|row| columns.push(decl, Some(row)));
        Self { partition, etag, key: order.iter().map(|row| row.key()).collect(), columns }
    }

    pub(crate) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let first: [&(dyn ToSql + Sync); 3] = [&self.partition, &self.etag, &self.key];
        first.into_iter().chain(self.columns.parameters()).collect()
    }
}
